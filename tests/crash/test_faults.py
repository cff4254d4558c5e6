"""Every kind of death: the status is unchanged, and the recording has the place and the cause."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

import pytracer
from pytracer.decode.types.snapshot import Crash
from tests.conditions import needs_compiler, needs_core, needs_native
from tests.support.crash import Ended, line_of, own_frames, victim

pytestmark = [needs_core, needs_compiler]

SEGV_MAPERR, SEGV_ACCERR, SI_KERNEL, BUS_ADRERR, ILL_ILLOPN, FPE_INTDIV, SI_TKILL, SI_USER = 1, 2, 128, 2, 2, 1, -6, 0
PRINTED = "the address that the victim prints"
OF_THE_INSTRUCTION = "the address of the instruction"
ANY = "any address"


@dataclass(frozen=True)
class Fault:
    """A victim and its expected death: signal, si_code, address, and the line of the victim's own innermost frame."""

    program: str
    signal: signal.Signals
    code: int
    addr: int | str
    function: str | None
    line: str | None
    arguments: tuple[str, ...] = ()
    native: str | None = None

    def __str__(self) -> str:
        return "-".join([self.program.removesuffix(".py"), *self.arguments])


S = signal.Signals
FAULTS = [
    Fault("null_dereference.py", S.SIGSEGV, SEGV_MAPERR, 24, "learning_rate", "return library", native="read_field"),
    Fault("wild_pointer.py", S.SIGSEGV, SEGV_MAPERR, 0x123456789018, "read_header", "return", native="read_field"),
    Fault("non_canonical_pointer.py", S.SIGSEGV, SI_KERNEL, 0, "next_block", "return library", native="read_field"),
    Fault("write_to_read_only.py", S.SIGSEGV, SEGV_ACCERR, PRINTED, "patch_weights", "library.w", native="write_field"),
    Fault("abort.py", S.SIGABRT, SI_TKILL, 0, "give_up", ").abort()"),
    Fault("failed_assertion.py", S.SIGABRT, SI_TKILL, 0, "reshape", "library.check_shape"),
    Fault("illegal_instruction.py", S.SIGILL, ILL_ILLOPN, OF_THE_INSTRUCTION, "dispatch", "library.unreach",
          native="unreachable_branch"),
    Fault("division_by_zero.py", S.SIGFPE, FPE_INTDIV, OF_THE_INSTRUCTION, "average", "return", native="mean_of"),
    Fault("truncated_mapping.py", S.SIGBUS, BUS_ADRERR, PRINTED, "read_all", "return library", native="sum_bytes"),
    Fault("stack_overflow.py", S.SIGSEGV, SEGV_MAPERR, ANY, "walk_tree", "library.depth_of", ("main",), "depth_of"),
    Fault("stack_overflow.py", S.SIGSEGV, SEGV_ACCERR, ANY, "walk_tree", "library.depth_of", ("thread",), "depth_of"),
    Fault("jump_to_null.py", S.SIGSEGV, SEGV_MAPERR, 0, "on_progress", "library.call_back"),
    Fault("killed_from_outside.py", S.SIGSEGV, SI_USER, 0, "wait_for_work", "os.read(answer", ("SEGV",)),
    Fault("killed_from_outside.py", S.SIGABRT, SI_USER, 0, "wait_for_work", "os.read(answer", ("ABRT",)),
    Fault("fault_on_raw_thread.py", S.SIGSEGV, SEGV_MAPERR, 24, None, None, native="read_field"),
    Fault("fault_on_python_thread.py", S.SIGSEGV, SEGV_MAPERR, 24, "collate", "library.read", native="read_field"),
]  # fmt: skip


CASES = [pytest.param(fault, way, id=f"{fault}-{way}") for fault in FAULTS for way in ("preload", "enable")]


@pytest.mark.parametrize(("fault", "way"), CASES)
def test_death_is_unchanged_and_recorded(fault: Fault, way: str, run: Path) -> None:
    """Status and output are as untraced; the recording holds signal, code, address, Python and native stack."""
    plain = victim(fault.program, *fault.arguments, run=run, way="untraced")
    traced = victim(fault.program, *fault.arguments, run=run, way=way)
    assert plain.status == traced.status == -fault.signal
    assert len(traced.stdout.splitlines()) == len(plain.stdout.splitlines())
    _stderr_is_unchanged(plain, traced, way)

    box = traced.box
    assert box.state == "CRASHED"
    assert box.damage == ()
    crash = box.crash
    assert crash is not None
    assert crash.complete
    assert not crash.repaired
    assert crash.steps_faulted == ()
    assert (crash.signal, crash.code) == (fault.signal, fault.code)
    _address_is_right(fault, crash, traced)
    if fault.function is not None and fault.line is not None:
        innermost = own_frames(crash.python_stack)[0]
        assert innermost == (fault.function, fault.program, line_of(fault.program, fault.line))
    if fault.native is not None:
        frames = traced.job.processes[0].snapshot.crash.native_stack  # type: ignore[union-attr]
        assert frames[0].function == fault.native
        assert frames[0].found == "exact"


def _stderr_is_unchanged(plain: Ended, traced: Ended, way: str) -> None:
    lines = traced.stderr.splitlines()
    if way == "enable":
        announced = [line for line in lines if line.startswith("pytracer: ")]
        assert len(announced) == 1, traced.stderr
        assert str(traced.run) in announced[0]
        lines.remove(announced[0])
    assert lines == plain.stderr.splitlines()


def _address_is_right(fault: Fault, crash: Crash, traced: Ended) -> None:
    if fault.addr is PRINTED:
        assert crash.fault_addr == int(traced.stdout.split()[-1], 16)
    elif fault.addr is OF_THE_INSTRUCTION:
        assert crash.fault_addr == crash.pc
    elif fault.addr is not ANY:
        assert crash.fault_addr == fault.addr


@pytest.mark.parametrize("name", ["SEGV", "ABRT"])
def test_sender_of_a_signal_is_named(name: str, run: Path) -> None:
    """A signal from kill() carries the pid of the process that sent it."""
    done = victim("killed_from_outside.py", name, run=run)
    assert done.box.crash is not None
    assert done.box.crash.sender_pid == int(done.stdout)


def test_signal_that_we_do_not_handle_is_left_alone(run: Path) -> None:
    """SIGTERM ends the victim as before; the record of it is in the process that waited for the victim."""
    done = victim("killed_from_outside.py", "TERM", run=run)
    assert done.status == -signal.SIGTERM
    assert done.box.crash is None


def test_raw_thread_has_no_python_stack_of_its_own(run: Path) -> None:
    """A thread without Python frames does not get those of another one, which are reported separately."""
    done = victim("fault_on_raw_thread.py", run=run)
    crash = done.box.crash
    assert crash is not None
    assert crash.thread_name == "prefetch"
    assert not crash.python_matched
    assert crash.python_stack == ()
    stacks = [own_frames(frames) for _, frames in crash.python_threads]
    line = line_of("fault_on_raw_thread.py", "library.prefetch")
    assert ("next_batch", "fault_on_raw_thread.py", line) in [frame for stack in stacks for frame in stack]


def test_python_thread_is_told_from_the_waiting_main_thread(run: Path) -> None:
    """The crashed thread's stack is its own; the main thread's is recorded, too."""
    crash = victim("fault_on_python_thread.py", run=run).box.crash
    assert crash is not None
    assert crash.python_matched
    functions = [{frame.function for frame in frames} for _, frames in crash.python_threads]
    assert len(functions) == 2
    assert sum("collate" in names for names in functions) == 1
    assert sum("wait_for" in names for names in functions) == 1


def test_jump_to_null_keeps_the_caller(run: Path) -> None:
    """With the program counter gone, the frames below are still found: the caller is on the stack."""
    done = victim("jump_to_null.py", run=run)
    crash = done.job.processes[0].snapshot.crash
    assert crash is not None
    assert crash.pc == 0
    assert "call_back" in [frame.function for frame in crash.native_stack[:3]]


@pytest.mark.parametrize("which", ["main", "thread"])
def test_stack_overflow_shows_both_ends_of_the_stack(which: str, run: Path) -> None:
    """Of thousands of frames the innermost and the outermost are kept, and the gap is counted."""
    crash = victim("stack_overflow.py", which, run=run).box.crash
    assert crash is not None
    assert crash.native_total > 1000
    assert crash.native_gap > 0
    assert crash.native_tail > 0
    verdict = pytracer.inspect(str(run)).verdict
    assert verdict is not None
    assert verdict.class_ == "stack-overflow"


@needs_native
def test_fault_on_an_openmp_worker_names_line_and_thread(run: Path) -> None:
    """The main thread waits for its worker: its Python line is the evidence, the crashed thread is OpenMP's."""
    plain = victim("fault_on_openmp_worker.py", run=run, way="untraced")
    done = victim("fault_on_openmp_worker.py", run=run)
    assert plain.status == done.status == -signal.SIGSEGV
    crash = done.box.crash
    assert crash is not None
    assert 0 <= crash.fault_addr - int(done.stdout, 16) < 4096
    assert crash.tid != done.pid
    lines = [frame for _, frames in crash.python_threads for frame in own_frames(frames)]
    assert ("normalize", "fault_on_openmp_worker.py", line_of("fault_on_openmp_worker.py", "return image")) in lines
    process = next(p for p in done.report.processes or () if p.pid == done.pid)
    assert process.thread is not None
    assert process.thread.kind == "openmp"
    opener = process.parallel_region_opener
    assert opener is not None and (opener.tid, opener.kind) == (done.pid, "main")
