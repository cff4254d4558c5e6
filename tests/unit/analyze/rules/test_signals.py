"""Rules about signals of faults other than memory accesses, and about sent signals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.analyze.platform import instruction
from pytracer.analyze.platform.division import decode_division
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, evidence, finding, memory, summary, verdict
from tests.support.synth import Box

DATA = 0x7F50_0000_0000
SIGILL, SIGTRAP, SIGFPE, SIGSYS = 4, 5, 8, 31
SI_KERNEL = 128

# illegal-instruction


@pytest.mark.parametrize(("code_bytes", "name"), [(b"\x0f\x0b", "ud2"), (b"\x0f\xb9\x40\x02", "ud1")])
def test_compiled_trap_is_told_from_a_missing_instruction(run: Path, code_bytes: bytes, name: str) -> None:
    """__builtin_trap and what compilers make of unreachable code."""
    report = died(run, signal=SIGILL, code=2, code_bytes=code_bytes)
    assert verdict(report) == ("illegal-instruction", "certain")
    assert f"ran into a trap that was compiled in ({name}) in read_sum" in summary(report)
    assert "-fsanitize=undefined" in advice(report)
    assert "code of libvictim.so" in evidence(report)


@pytest.mark.parametrize(
    ("code_bytes", "extension"),
    [("62f17c4810c1", "AVX-512"), ("c5fc58c1", "AVX, AVX2 or FMA"), ("c4e27d18c0", "AVX, AVX2 or FMA")],
)
def test_instruction_that_the_processor_lacks_names_its_set(run: Path, code_bytes: str, extension: str) -> None:
    """A library built for another processor; recognized by its prefix, also without a disassembler."""
    report = died(run, signal=SIGILL, code=2, code_bytes=bytes.fromhex(code_bytes))
    assert verdict(report) == ("illegal-instruction", "likely")
    assert f"executed an instruction that this processor lacks ({extension})" in summary(report)
    assert "ATEN_CPU_CAPABILITY" in advice(report)


def test_tile_instructions_are_amx(run: Path) -> None:
    """tilezero tmm0: the prefix is that of AVX, the opcode is not."""
    report = died(run, signal=SIGILL, code=2, code_bytes=bytes.fromhex("c4e27b49c0"))
    assert "(AMX)" in summary(report)


def test_bytes_of_no_library_are_called_so(run: Path) -> None:
    """A jump into executable memory that belongs to no image."""
    mapping = (DATA, DATA + 4096, "rwxp", 0, "")
    report = died(
        run,
        signal=SIGILL,
        code=2,
        pc=DATA,
        code_bytes=b"\x06\x06",
        mappings=[PROGRAM, mapping],
        stack_of=[(None, None)],
    )
    assert "executed bytes that are no library's code" in summary(report)
    assert "belongs to no library" in evidence(report)


def test_illegal_instruction_does_not_fire_when_the_signal_was_sent(run: Path) -> None:
    """kill -ILL."""
    report = died(run, signal=SIGILL, code=0, sender_pid=4242, code_bytes=b"\x0f\x0b")
    assert finding(report, "illegal-instruction") is None
    assert verdict(report) == ("external-kill", "certain")


# arithmetic

IDIV_ECX, IDIV_R9, DIV_MEMORY, IDIV_MEMORY = b"\xf7\xf9", b"\x49\xf7\xf9", b"\xf7\x37", b"\xf7\x3f"


@pytest.mark.parametrize(
    ("code_bytes", "registers", "words"),
    [
        (IDIV_ECX, {"rcx": 0xFFFF_FFFF_0000_0000}, "divided an integer by zero in read_sum"),
        (IDIV_ECX, {"rcx": 0xFFFF_FFFF}, "divided the smallest integer by -1 in read_sum"),
        (IDIV_R9, {"r9": 0xFFFF_FFFF}, "had a quotient that does not fit in read_sum"),
        (b"\xc3", {}, "divided an integer by zero, or the smallest integer by -1 in read_sum"),
        (IDIV_MEMORY, {"rdi": 8, "rax": 7, "rdx": 0}, "divided an integer by zero in read_sum"),
        (IDIV_MEMORY, {"rdi": 8, "rax": 0xFFFF_FFFE, "rdx": 0xFFFF_FFFF}, "divided an integer by zero in read_sum"),
        (
            IDIV_MEMORY,
            {"rdi": 8, "rax": 0x8000_0000, "rdx": 0xFFFF_FFFF},
            "divided the smallest integer, -2147483648, by -1 or by zero in read_sum",
        ),
        (IDIV_MEMORY, {"rdi": 8, "rax": 7, "rdx": 1}, "by zero, or the smallest integer by -1 in read_sum"),  # wider
    ],
)
def test_arithmetic_reads_the_divisor(run: Path, code_bytes: bytes, registers: dict[str, int], words: str) -> None:
    """x86-64 raises the same code for a division by zero and one that overflows; the register decides."""
    report = died(run, signal=SIGFPE, code=1, code_bytes=code_bytes, registers=registers)
    assert verdict(report) == ("arithmetic", "certain")
    assert words in summary(report)


@pytest.mark.parametrize(("divisor", "overflow"), [(0xFFFF_FFFF, True), (0, False)])
def test_smallest_integer_by_minus_one_is_no_size(divisor: int, overflow: bool, run: Path) -> None:
    """Elements of the data: to be masked, or divided in a wider type."""
    report = died(run, signal=SIGFPE, code=1, code_bytes=IDIV_ECX, registers={"rcx": divisor})
    assert ("has no quotient by -1: mask or replace it" in advice(report)) == overflow
    assert ("a size or count that is 0" in advice(report)) != overflow


@needs_capstone
def test_arithmetic_reads_a_divisor_in_memory(run: Path) -> None:
    """div dword ptr [rdi], with the recorded operand."""
    report = died(run, signal=SIGFPE, code=1, code_bytes=DIV_MEMORY, registers={"rdi": DATA}, memory=(memory(DATA, 0),))
    assert "divided an integer by zero" in summary(report)
    assert "the divisor (in memory, 4 bytes) was 0x0" in evidence(report)


def test_floating_point_error_speaks_of_traps(run: Path) -> None:
    """Floats raise SIGFPE only where it was enabled."""
    report = died(run, signal=SIGFPE, code=3)
    assert "divided a float by zero" in summary(report) and "feenableexcept" in advice(report)
    assert summary(report).endswith("floating-point traps are on.")


def test_arithmetic_does_not_fire_for_a_raised_signal(run: Path) -> None:
    """os.kill(os.getpid(), SIGFPE)."""
    report = died(run, signal=SIGFPE, code=0, sender_pid=101, code_bytes=IDIV_ECX)
    assert finding(report, "arithmetic") is None
    assert verdict(report) == ("unknown", "unknown")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("f7f1", ("rcx", 4, False)),
        ("48f7fe", ("rsi", 8, True)),
        ("66f7f3", ("rbx", 2, False)),
        ("41f6f8", ("r8", 1, True)),
        ("f6f4", (None, 1, False)),  # div ah
        ("f7d9", None),  # neg ecx
        ("f7", None),
        ("", None),
    ],
)
def test_division_is_decoded_without_a_disassembler(code: str, expected: tuple[str | None, int, bool] | None) -> None:
    """Register, width and sign of div and idiv."""
    division = decode_division(bytes.fromhex(code), {})
    assert (division and (division.register, division.nbytes, division.signed)) == expected


# trap and forbidden-system-call


def test_trap_names_the_breakpoint(run: Path) -> None:
    """int3: the kernel's code is SI_KERNEL, the program counter is behind it."""
    report = died(run, signal=SIGTRAP, code=SI_KERNEL)
    assert verdict(report) == ("trap", "certain")
    assert "hit a breakpoint instruction (int3) in read_sum" in summary(report)


def test_trap_does_not_fire_when_it_was_raised(run: Path) -> None:
    """raise(SIGTRAP)."""
    assert finding(died(run, signal=SIGTRAP, code=-6, sender_pid=101), "trap") is None


def test_forbidden_system_call_is_named(run: Path) -> None:
    """seccomp restores the number in rax."""
    report = died(run, signal=SIGSYS, code=1, registers={"rax": 425})
    assert verdict(report) == ("forbidden-system-call", "certain")
    assert "made a system call that a seccomp filter forbids, io_uring_setup, in read_sum" in summary(report)


def test_forbidden_system_call_does_not_fire_when_the_signal_was_sent(run: Path) -> None:
    """kill -SYS."""
    assert finding(died(run, signal=SIGSYS, code=0, sender_pid=7), "forbidden-system-call") is None


@pytest.mark.parametrize("number", [SIGILL, SIGTRAP, SIGFPE, SIGSYS])
def test_signals_without_a_crash_record_cannot_be_decided(run: Path, number: int) -> None:
    """The parent recorded the signal, the process nothing."""
    report = build_report(s.load(run, s.agent((102, {"signal": number})), s.rank(1).at(500)))
    rule = {SIGILL: "illegal-instruction", SIGTRAP: "trap", SIGFPE: "arithmetic", SIGSYS: "forbidden-system-call"}
    results = {item.id: item.result for item in report.checked or []}
    assert results[rule[number]] == "cannot-decide"


def test_rules_work_without_a_disassembler(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """capstone is optional."""
    monkeypatch.setattr(instruction, "disassembler", lambda: None)
    monkeypatch.setattr("pytracer.analyze.evidence.phrases.disassembler", lambda: None)
    report = died(run, signal=SIGFPE, code=1, code_bytes=IDIV_ECX, registers={"rcx": 0})
    assert "divided an integer by zero" in summary(report)


# external-kill


def sent(run: Path, *others: Box, sender: int = 4242, **how: Any) -> Any:
    return died(run, *others, signal=how.pop("signal", 6), code=0, addr=0, sender_pid=sender, **how)


def test_sender_is_named_with_pid_and_command_line(run: Path) -> None:
    """A watchdog that is not part of the job."""
    report = sent(run, sender_command=("/usr/bin/timeout", "-s", "ABRT", "60", "python", "train.py"))
    assert verdict(report) == ("external-kill", "certain")
    assert summary(report) == "Process 101 (train.py) was ended by SIGABRT, sent by process 4242 (timeout)."
    assert "the sender's command line was: /usr/bin/timeout -s ABRT 60 python train.py" in evidence(report)


def test_sender_within_the_job_is_named_by_its_part(run: Path) -> None:
    """torchrun's agent, another rank, the parent."""
    agent = s.agent((101, {"signal": 11}))
    report = sent(run, agent, sender=100, signal=11, box=Box(pid=101, ppid=100, rank=0))
    assert "sent by torchrun's agent, process 100 (torchrun)" in summary(report)
    for command in (("timeout", "60", "pytest"), ("timeout", "60", "/usr/bin/torchrun", "train.py")):
        limit = Box(pid=100, ppid=1, argv=command, python_minor=0).wait(101, signal=11)
        report = sent(
            run / command[2].replace("/", "_"), limit, sender=100, signal=11, box=Box(pid=101, ppid=100, rank=0)
        )
        assert "sent by its parent, process 100 (timeout)" in summary(report)  # a launcher, and not torchrun's


def test_sender_that_is_another_rank_is_named_by_its_rank(run: Path) -> None:
    """A rank that kills another rank."""
    other = Box(pid=102, ppid=100, rank=1).at(2000).exit(0)
    report = sent(run, other, sender=102, box=Box(pid=101, ppid=100, rank=0))
    assert "sent by rank 1, process 102 (train.py)" in summary(report)


def test_sender_that_is_the_launcher_is_named(run: Path) -> None:
    """pytracer run itself."""
    report = sent(run, sender=99, box=Box(pid=101, ppid=98), launcher={"pid": 99})
    assert "sent by the launcher, process 99 (pytracer run)" in summary(report)


def test_sender_of_another_pid_namespace_is_said_to_be_outside(run: Path) -> None:
    """The kernel gives 0 for a process that the receiver cannot name."""
    report = sent(run, sender=0, signal=11)
    assert verdict(report) == ("external-kill", "certain")
    assert "a process outside of this container" in summary(report)


def test_abort_of_another_pid_namespace_is_no_abort(run: Path) -> None:
    """kill -ABRT from the host."""
    report = sent(run, sender=0)
    assert finding(report, "abort") is None
    assert verdict(report) == ("external-kill", "certain")
