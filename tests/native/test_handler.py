"""The crash handler's own budget: stack, calls, time, faults inside it, threads that die together."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytracer.blackbox.schema import Region, Step
from pytracer.decode.types.records import Text
from pytracer.decode.types.snapshot import Crash, Snapshot
from pytracer.render.text import render_text
from tests.conditions import needs_core, needs_native, needs_torch
from tests.native.harness import CSRC, Native
from tests.support.crash import Ended, ended
from tests.support.records import data_of

pytestmark = needs_core

STEPS = {step.name for step in Step}
# own_stack.h requires that measured use stays below a quarter of this.
(_KIB,) = re.findall(r"kOwnStackBytes = (\d+) << 10", (CSRC / "crashsafe/unwind/own_stack.h").read_text())
ALTERNATE_STACK_BYTES = int(_KIB) << 10
WAYS = {
    "null": ("t.testing_null()", -11),
    "abort": ("t.testing_abort()", -6),
    "stack overflow": ("t.testing_overflow()", -11),
    "wild jump": ("t.testing_wild_jump()", -11),
    "smashed stack": ("t.testing_smashed_stack()", -11),
    "inside malloc": ("t.testing_in_malloc()", -6),
}
ONE_MORE_THREAD = "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
# -S hides site-packages from the children; torch needs them.
TORCH = """
sys.path[1:1] = {path!r}
import torch
from pytracer.record.core import core as recorder
assert recorder().recording
class Crash(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, g):
        {crash}
        return g
def run():
    torch.ones(300, 300) @ torch.ones(300, 300)
    Crash.apply(torch.ones(4, requires_grad=True)).sum().backward()
"""


def torch_crash(crash: str) -> str:
    """Code that crashes inside a backward of torch, with the hooks of the recorder installed."""
    return TORCH.format(path=sys.path[1:], crash=crash)


def crash_of(done: Ended, status: int = -11) -> Crash:
    """The complete report of a child that died as expected."""
    assert done.status == status, f"status {done.status}: {done.stderr}"
    crash = done.box.crash
    assert crash is not None and crash.complete
    assert crash.signal == -status
    return crash


def stack_use(native: Native, code: str, status: int, before: str = "") -> int:
    """Bytes of the alternate stack that a crash used, by its paint."""
    path = native.run.parent / "painted"
    done = native.child(f"{before}\nassert t.testing_paint({str(path)!r}.encode())\n{code}")
    crash_of(done, status)
    paint = path.read_bytes()
    path.unlink()
    assert len(paint) == ALTERNATE_STACK_BYTES
    return len(paint.lstrip(b"\xa5"))


@pytest.mark.parametrize("way", WAYS)
def test_handler_uses_less_than_a_quarter_of_its_stack(native: Native, way: str) -> None:
    """By painting: collection, nested faults and the kernel's own frames together stay below 32 KiB."""
    used = stack_use(native, *WAYS[way])
    print(f"{way}: {used} bytes of the alternate stack")
    assert used < ALTERNATE_STACK_BYTES // 4


def test_stack_use_with_other_threads_is_below_a_quarter(native: Native) -> None:
    """Including the walk of other threads' stacks, by ptrace or by a signal."""
    used = stack_use(native, "t.testing_null()", -11, ONE_MORE_THREAD)
    print(f"null beside another thread: {used} bytes of the alternate stack")
    assert used < ALTERNATE_STACK_BYTES // 4


@needs_torch
@needs_native
def test_handler_uses_less_than_a_quarter_of_its_stack_with_torch(native: Native) -> None:
    """The same below torch's frames, with an autograd node to name and Python frames to walk."""
    used = stack_use(native, "run()", -11, torch_crash("t.testing_null()"))
    print(f"null inside torch's backward: {used} bytes of the alternate stack")
    assert used < ALTERNATE_STACK_BYTES // 4


def test_stack_use_with_faults_in_every_step_is_below_a_quarter(native: Native) -> None:
    """The frames of a survived fault remain only until its step ends: many faults need no more stack than one."""
    forbidden = [Region.THREADS, Region.PYTHON_THREADS, Region.STORAGES, Region.NATIVE_FRAMES]
    before = "t.testing_marks(1, U64(1)); t.testing_probe_that_faults()\n"
    before += "\n".join(f"assert t.testing_forbid({int(kind)})" for kind in forbidden)
    used = stack_use(native, "t.testing_read(U64(0x12345678))", -11, before)
    print(f"faults in six steps: {used} bytes of the alternate stack")
    assert used < ALTERNATE_STACK_BYTES // 4


@pytest.mark.parametrize("way", ["null", "abort", "stack overflow", "wild jump", "smashed stack"])
def test_handler_neither_allocates_nor_locks(native: Native, way: str) -> None:
    """A watcher would end the process if the handler's thread allocated, mapped or locked a mutex."""
    code, status = WAYS[way]
    crash_of(native.child(code, native.watch), status)


@needs_torch
@needs_native
@pytest.mark.parametrize("way", ["null", "abort", "stack overflow"])
@pytest.mark.quick(1)
def test_handler_neither_allocates_nor_locks_with_torch(native: Native, way: str) -> None:
    """The same inside torch's backward, where the handler also asks torch for the running autograd node."""
    code, status = WAYS[way]
    crash = crash_of(native.child(torch_crash(code) + "run()", native.watch), status)
    assert crash.node is not None and "Crash" in crash.node
    assert [f.function for f in crash.python_stack][:1] == ["Crash.backward"]


@needs_torch
@needs_native
@pytest.mark.parametrize("where", ["inside malloc", "thread"])
def test_handler_does_not_allocate_on_threads_new_to_torch(native: Native, where: str) -> None:
    """On a thread new to torch, its thread-locals do not exist: querying the node must not allocate them."""
    code = {"inside malloc": "t.testing_in_malloc()", "thread": "t.testing_crash_on_thread()"}[where]
    crash = crash_of(
        native.child(torch_crash("pass") + "run()\n" + code, native.watch), -11 if where == "thread" else -6
    )
    assert set(crash.steps_done) == STEPS
    assert crash.node is None


def test_watcher_notices_an_allocation_in_the_handler(native: Native) -> None:
    """Control: an allocation on our handler's stack is caught, so that the tests above can fail."""
    done = native.child("t.testing_allocate_in_handler()", native.watch)
    assert done.status == 99
    assert "the handler called malloc" in done.stderr


def fault_to_complete_ns(box: Snapshot) -> int:
    """From the instruction before the fault to the end of the last step."""
    (text,) = [mark.text for mark in data_of(box.events, Text) if mark.text.startswith("fault ")]
    assert box.crash is not None
    return box.crash.step_ns[Step.MAPS.name] - int(text.split()[1])


def test_report_is_complete_within_a_second(native: Native) -> None:
    """From the fault to the end of the last step, in a small process."""
    done = native.child("t.testing_timed_null()")
    crash_of(done)
    nanoseconds = fault_to_complete_ns(done.box)
    print(f"fault to complete report: {nanoseconds / 1000:.0f} us; steps end at {steps_us(done.box)}")
    assert nanoseconds < 1_000_000_000


@needs_torch
@needs_native
def test_report_is_complete_within_a_second_with_torch(native: Native) -> None:
    """The same with torch loaded, whose images, unwind tables and memory map are large."""
    done = native.child(torch_crash("t.testing_timed_null()") + "run()")
    crash_of(done)
    nanoseconds = fault_to_complete_ns(done.box)
    print(f"with torch, fault to complete report: {nanoseconds / 1000:.0f} us; steps end at {steps_us(done.box)}")
    assert nanoseconds < 1_000_000_000


def steps_us(box: Snapshot) -> dict[str, int]:
    """When each step ended, in us after the handler was entered."""
    assert box.crash is not None
    start = box.crash.mono_ns
    return {name: round((ns - start) / 1000) for name, ns in box.crash.step_ns.items()}


@pytest.mark.parametrize(
    ("how", "faulted"),
    [
        (f"t.testing_marks(1, U64(1)); assert t.testing_forbid({Region.THREADS:d})", {"SIGNAL"}),
        ("t.testing_probe_that_faults()", {"AUTOGRAD_NODE"}),
        (f"assert t.testing_forbid({Region.PYTHON_THREADS:d})", {"PYTHON_STACK"}),
        (f"assert t.testing_forbid({Region.PYTHON_FRAMES:d})", {"PYTHON_STACK"}),
        (f"assert t.testing_forbid({Region.STORAGES:d})", {"STORAGE_LOOKUP", "LOADED_IMAGES"}),
        (f"t.testing_marks(1, U64(1)); assert t.testing_forbid({Region.FREED_STORAGES:d})", {"STORAGE_LOOKUP"}),
        (f"assert t.testing_forbid({Region.NATIVE_FRAMES:d})", {"NATIVE_STACK", "NATIVE_FALLBACK"}),
        (f"assert t.testing_forbid({Region.IMAGES:d})", {"IMAGES", "LOADED_IMAGES"}),
        (f"assert t.testing_forbid({Region.MEMORY:d})", {"MEMORY"}),
        (f"{ONE_MORE_THREAD}; assert t.testing_forbid({Region.THREAD_STACKS:d})", {"OTHER_THREADS"}),
        (f"{ONE_MORE_THREAD}; assert t.testing_forbid({Region.THREAD_FRAMES:d})", set()),
    ],
    ids=[
        *(
            "threads",
            "node probe",
            "Python threads",
            "Python frames",
            "storages",
            "freed storages",
            "native frames",
            "images",
        ),
        *("memory", "thread stacks", "thread frames"),
    ],
)
def test_fault_inside_a_step_costs_that_step_alone(native: Native, how: str, faulted: set[str]) -> None:
    """A fault inside a step is survived and marked; every other step completes, and the signal is unchanged."""
    crash = crash_of(native.child(f"{how}\nt.testing_read(U64(0x12345678))"))
    assert set(crash.steps_faulted) == faulted
    assert set(crash.steps_done) == STEPS - faulted
    assert crash.fault_addr == 0x12345678
    if "PYTHON_STACK" not in faulted:
        assert crash.python_stack
    if "NATIVE_STACK" not in faulted:
        assert len(crash.native_stack) > 4


@needs_torch
@needs_native
@pytest.mark.parametrize("region", [Region.NAMES, Region.HOLDERS, Region.ARGUMENTS], ids=lambda region: region.name)
@pytest.mark.quick(1)
def test_fault_in_names_holders_or_arguments_costs_that_step_alone(native: Native, region: Region) -> None:
    """The table of names, or the section for the results, is not accessible. ARGUMENTS finds the tensor passed."""
    passed = "U64(layer.weight._cdata)"
    code = f"layer = torch.nn.Linear(3, 3)\nassert t.testing_forbid({region:d})\nt.testing_null({passed})"
    crash = crash_of(native.child(torch_crash("pass") + code))
    assert crash.steps_faulted == (region.name,)
    assert set(crash.steps_done) == STEPS - {region.name}


DAMAGE = """
import ctypes
def word(addr, value): ctypes.c_uint64.from_address(addr).value = value
def victim(value):
    tensor, items, table = torch.ones(3), [torch.ones(3)] * 4, {"key": torch.ones(3)}
    node = torch.ones(3, requires_grad=True).exp()
    class Holder: pass
    holder = Holder(); holder.cache = torch.ones(3)
    keys = ctypes.c_uint64.from_address(id(table) + 32).value
    before = id(tensor), id(items), id(table), id(holder), id(node), keys, node._cdata, tensor._cdata
    del keys
    %s
    t.testing_null()
"""
DAMAGES = {
    "tensor without impl": "word(before[0] + 16, value)",
    "object without type": "word(before[0] + 8, value)",
    "impl without storage": "word(before[7] + 16, value)",
    "list of garbage": "word(before[1] + 24, value)",
    "list without end": "word(before[1] + 16, (1 << 62) + value)",
    "dict without keys": "word(before[2] + 32, value)",
    "dict without end": "word(before[5] + 24, (1 << 62) + value)",
    "node of garbage": "word(before[4] + 16, value)",
}


@needs_torch
@needs_native
@pytest.mark.parametrize("garbage", [0, 1, 0x4141414141414141, 0x7FFFFFFFF000])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.quick(8)
def test_damaged_objects_cost_their_holders_alone(native: Native, damage: str, garbage: int) -> None:
    """Python objects and tensors that a wild write has overwritten: the search for holders ends without a fault."""
    code = DAMAGE % DAMAGES[damage] + f"victim({garbage})"
    crash = crash_of(native.child(torch_crash("pass") + code))
    assert set(crash.steps_done) == STEPS
    assert (crash.steps_faulted, crash.steps_late) == ((), ())
    assert {item.expression for item in crash.holders} & {"holder.cache", "node", "tensor", "table['key']"}


@pytest.mark.parametrize("step", list(Step), ids=lambda step: step.name)
def test_crash_at_every_step_of_the_handler_leaves_a_readable_report(native: Native, step: Step) -> None:
    """Each step in turn begins with a fault: it is marked, the others complete, the exit status is the same."""
    code = f"{ONE_MORE_THREAD}\ncore.pytracer_break_step({int(step)})\nt.testing_read(U64(0x12345678))"
    done = native.child(code)
    crash = crash_of(done)
    assert crash.steps_faulted == (step.name,)
    assert set(crash.steps_done) == STEPS - {step.name}
    assert (crash.signal, crash.fault_addr) == (11, 0x12345678)
    report = done.report
    assert report.verdict is not None and report.verdict.pid == done.pid
    assert "0x12345678" in render_text(report)


def test_unreadable_map_is_no_fault(native: Native) -> None:
    """The last step only lets the kernel write: a refused write leaves an empty map and a complete report."""
    crash = crash_of(native.child(f"assert t.testing_forbid({Region.MAPS:d})\nt.testing_null()"))
    assert set(crash.steps_done) == STEPS


def test_smashed_stack_leaves_python_and_a_scan(native: Native) -> None:
    """With a garbage return address libgcc itself faults: the scan of the stack takes over, Python frames are exact."""
    crash = crash_of(native.child("def victim(): t.testing_smashed_stack()\nvictim()"))
    assert crash.steps_faulted == ("NATIVE_STACK",)
    assert [f.function for f in crash.python_stack] == ["victim", "<module>"]
    assert crash.native_stack[0].pc == crash.pc
    assert {f.found for f in crash.native_stack[1:]} <= {"unwound", "frame pointers", "scanned"} and len(
        crash.native_stack
    ) > 4


@pytest.mark.parametrize("garbage", [0, 8, 0x4141414141414141, 0x7FFFFFFFF000])
def test_garbage_thread_state_costs_the_python_stack_alone(native: Native, garbage: int) -> None:
    """Python's own thread state points to garbage: the walk finds nothing, every step is done."""
    code = "from pytracer.record.core import core as recorder\nassert recorder().check_python()\n"
    crash = crash_of(native.child(f"{code}t.testing_crash_with_garbage_thread_state(U64({garbage}))"))
    assert set(crash.steps_done) == STEPS and crash.steps_faulted == ()
    assert crash.python_stack == ()
    assert len(crash.native_stack) > 4


def test_garbage_node_name_is_left_out(native: Native) -> None:
    """A probe that answers with an unreadable name costs the name."""
    crash = crash_of(native.child("t.testing_probe_with_garbage_name(); t.testing_null()"))
    assert set(crash.steps_done) == STEPS
    assert crash.node_sequence_nr == 7


def test_threads_that_crash_together_leave_one_report(native: Native) -> None:
    """One thread reports; the others leave a line each in ALSO_CRASHED; the process ends soon; the status is right."""
    for probe in ("", "t.testing_slow_probe(700)\n"):
        native.run = native.run.with_name(f"run{len(probe)}")
        start = time.monotonic()
        done = native.child(f"{probe}t.testing_crash_together(8)")
        assert time.monotonic() - start < 4  # kParkMilliseconds is 5000: no thread waited for it
        crash = crash_of(done)
        assert set(crash.steps_done) == STEPS
        others = [other.tid for other in crash.also_crashed]
        assert len(set(others)) == len(others) <= 7
        assert len(others) == 7 or not probe  # those that were still on their way when the process ended leave nothing
        assert crash.tid not in others
        assert all(o.signal == 11 and o.fault_addr == 0 and o.pc == crash.pc for o in crash.also_crashed)


@pytest.mark.parametrize("threads", [1, 2])
def test_step_that_hangs_is_given_up_and_the_others_are_done(native: Native, threads: int) -> None:
    """The death is delayed by the step's limit of a second, not forever; the report names the missing step."""
    start = time.monotonic()
    done = native.child(f"t.testing_slow_probe(100000); t.testing_crash_together({threads})")
    assert 1 < time.monotonic() - start < 5
    crash = crash_of(done)
    assert crash.steps_late == ("AUTOGRAD_NODE",)
    assert set(crash.steps_done) == STEPS - {"AUTOGRAD_NODE"}
    assert crash.steps_faulted == ()
    assert len(crash.also_crashed) == threads - 1


@pytest.mark.parametrize("threads", [1, 4])
def test_threads_whose_faults_are_repaired_all_live(native: Native, threads: int) -> None:
    """A program may repair its own faults (a write barrier) on several threads at once: waiting kills none of them."""
    start = time.monotonic()
    done = native.child(f"t.testing_repair_together({threads}, 200)")
    assert done.status == 0, done.stderr
    assert time.monotonic() - start < 10
    assert done.box.state == "EXITING"
    repaired = done.box.counts[
        "faults_repaired"
    ]  # while the first one is reported, those of other threads are not counted
    assert repaired == 200 if threads == 1 else 200 <= repaired <= threads * 200


def test_crash_after_a_handler_left_by_siglongjmp_is_reported(native: Native) -> None:
    """One thread left its handler by a jump; the later crash of another one is the report, not a line in the first."""
    start = time.monotonic()
    done = native.child("t.testing_jump_out(); t.testing_default_action(); t.testing_crash_on_thread()")
    assert time.monotonic() - start < 4
    crash = crash_of(done)
    assert crash.tid != done.pid
    assert not crash.repaired and crash.also_crashed == ()
    assert done.box.counts["faults_repaired"] == 1


def test_crash_beside_a_handler_that_runs_is_prompt(native: Native) -> None:
    """The report is the handler's fault; the dying thread requests the stacks of all others, not its own."""
    start = time.monotonic()
    done = native.child("t.testing_crash_beside_handler()")
    assert time.monotonic() - start < 4
    crash = crash_of(done)
    assert crash.tid == done.pid
    assert len(crash.also_crashed) == 1
    assert "OTHER_THREADS" in crash.steps_done


@pytest.mark.parametrize("way", ["a full pipe", "a closed pipe", "nothing"])
def test_line_on_stderr_never_keeps_a_process_from_dying(native: Native, way: str) -> None:
    """Without a launcher the handler announces the death, unless stderr would block or is gone."""
    code = {
        "a full pipe": """
read_end, write_end = os.pipe()
os.set_blocking(write_end, False)
try:
    while True: os.write(write_end, bytes(4096))
except BlockingIOError: pass
os.set_blocking(write_end, True)
os.dup2(write_end, 2)
""",
        "a closed pipe": "import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
        "read_end, write_end = os.pipe(); os.dup2(write_end, 2); os.close(read_end)\n",
        "nothing": "os.close(2)\n",
    }[way]
    env = {name: value for name, value in native.env().items() if name != "PYTRACER_LAUNCHER"}
    start = time.monotonic()
    crash_of(ended(native.command(code + "t.testing_null()"), env, native.run))
    assert time.monotonic() - start < 4


@pytest.mark.parametrize(
    ("code", "status", "function"),
    [
        ("t.testing_in_malloc()", -6, "the lock of the arena"),
        ("t.testing_crash_on_thread()", -11, "a thread"),
        ("t.testing_overflow_on_thread()", -11, "the stack of a thread"),
    ],
    ids=["arena lock held", "thread", "overflow of a thread"],
)
def test_difficult_places_are_reported(native: Native, code: str, status: int, function: str) -> None:
    """With the heap locked, on a plain thread, on an overflowed stack: all steps complete, the stack is recorded."""
    crash = crash_of(native.child(code), status)
    assert set(crash.steps_done) == STEPS
    assert len(crash.native_stack) >= 4


def test_crash_in_a_constructor_of_a_library_is_reported(native: Native, tmp_path: Path) -> None:
    """A fault while the dynamic linker holds its lock: all steps are done, nothing waits."""
    source, library = tmp_path / "constructor.c", tmp_path / "constructor.so"
    source.write_text("__attribute__((constructor)) void start(void) { *(volatile int*)0 = 1; }\n", encoding="utf-8")
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
    crash = crash_of(native.child(f"ctypes.CDLL({str(library)!r})"))
    assert set(crash.steps_done) == STEPS
    assert any(f.image and f.image.endswith("constructor.so") for f in crash.native_stack)
    assert any(f.image and "ld-linux" in f.image for f in crash.native_stack)


def test_vfork_childs_crash_is_its_own(native: Native) -> None:
    """A child between vfork and exec shares our memory: its crash kills it and leaves its parent's recording alone."""
    done = native.child("print(t.testing_crash_in_vfork_child())")
    assert done.status == 0, done.stderr
    assert int(done.stdout) & 0x7F == 11
    assert done.box.crash is None
    assert [w.signal for w in done.box.waits] == [11]
