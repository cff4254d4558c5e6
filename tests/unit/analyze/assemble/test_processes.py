"""The report of one process: messages of the program, formation of the address, recursion on the stack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.assemble.processes import process_report
from pytracer.analyze.assemble.view import build_view
from pytracer.analyze.timeline.clock import RunClock
from pytracer.decode.types.snapshot import Job
from pytracer.report import job as r
from tests.conditions import needs_capstone
from tests.support import crash_scenarios as c
from tests.support import scenarios as s
from tests.support.synth import Box

ABORT = {"signal": 6, "code": -6, "sender_pid": 101, "native": s.NATIVE[:1]}


def process(job: Job) -> r.ProcessReport:
    return process_report(build_view(0, job.processes[0], RunClock(job)))


def report(run: Path, box: Box, **crash: Any) -> r.ProcessReport:
    return process(s.load(run, box.crash(**crash)))


@pytest.mark.parametrize(
    ("ago_ms", "signal", "kept"),
    [(1, 6, True), (9_000, 6, True), (11_000, 6, False), (1, 11, False)],
    ids=["right before", "nine seconds before", "long before", "before another signal"],
)
def test_cpp_exception_belongs_to_the_abort_that_follows(ago_ms: int, signal: int, kept: bool, tmp_path: Path) -> None:
    """An older one belongs to a thread whose termination a handler changed."""
    box = Box(pid=101).at(100).cpp_exception("std::bad_alloc", "std::bad_alloc").at(100 + ago_ms)
    found = report(tmp_path, box, **{**ABORT, "signal": signal}).exception
    assert (found is not None) == kept
    if found is not None:
        assert (found.type, found.message, found.language) == ("std::bad_alloc", "std::bad_alloc", "C++")


def test_cpp_exception_of_the_crashed_thread_is_preferred(tmp_path: Path) -> None:
    """Two threads call std::terminate(); the one that aborted is reported. No type: nothing was thrown."""
    box = Box(pid=101).cpp_exception("A", "a", tid=101).cpp_exception("B", "b", tid=102)
    found = report(tmp_path / "1", box, **ABORT).exception
    assert found is not None and found.type == "A"
    assert report(tmp_path / "2", Box(pid=101).cpp_exception(""), **ABORT).exception is None


def test_python_exception_that_began_the_end_is_told_first(tmp_path: Path) -> None:
    """A C++ exception while the interpreter shuts down is a consequence; after more work it is not."""
    box = Box(pid=101).exception("ValueError", "bad", [("f", "f.py", 3)]).cpp_exception("std::runtime_error", "late")
    found = report(tmp_path / "1", box, **ABORT).exception
    assert found is not None and (found.type, found.language) == ("ValueError", "Python")
    box = Box(pid=101).exception("ValueError", "bad").step(3).cpp_exception("std::runtime_error", "late")
    found = report(tmp_path / "2", box, **ABORT).exception
    assert found is not None and (found.type, found.language) == ("std::runtime_error", "C++")


def test_words_of_the_crash_reach_the_report(tmp_path: Path) -> None:
    """Abort text, sender, memory, images, mappings."""
    found = process(c.terminated(tmp_path))
    assert [(b.register, b.addr, b.bytes) for b in found.memory_blocks or []][1] == (
        "rdi", "0x7f500000003c", b"tensor data\0\1\2\3\4\xff".hex(),
    )  # fmt: skip
    assert {(i.path, i.build_id) for i in found.images or []} >= {(s.LIBC, "ab" * 20), (c.GOMP, None)}
    assert [(m.path, m.permissions, m.offset) for m in found.mappings or []] == [(s.PYTHON, "r-xp", 0)]
    assert process(c.heap_damage(tmp_path / "heap")).abort_text == "free(): invalid pointer"
    signal = process(c.ended_by_name(tmp_path / "sent")).signal
    assert signal is not None and (signal.sender_command or [])[:2] == ["timeout", "--signal=ABRT"]


def test_file_behind_the_fault_is_told_as_it_was(tmp_path: Path) -> None:
    """Its size and the free space of its file system at the crash, and the start of the mapping."""
    maps = [(0x7F60_0000_0000, 0x7F60_0001_0000, "r--s", 0x2000, "/gone/tokens.bin")]
    found = report(
        tmp_path, Box(pid=101), signal=7, code=2, addr=0x7F60_0000_5000, mappings=maps, fault_file=(12288, 99, 1)
    ).fault
    assert found is not None and found.mapping is not None
    mapping = found.mapping
    assert (mapping.offset, mapping.file_size, mapping.file_size_at_crash, mapping.file_room_at_crash) == (
        0x2000, None, 12288, 99,
    )  # fmt: skip


@needs_capstone
@pytest.mark.parametrize(
    ("code", "expression"),
    [("8b4718", "rdi + 0x18"), ("8b47f8", "rdi - 0x8"), ("8b448810", "rax + rcx*4 + 0x10"), ("50", "rsp - 0x8")],
    ids=["mov", "below", "indexed", "push"],
)
def test_expression_is_base_and_displacement(code: str, expression: str, tmp_path: Path) -> None:
    """As the instruction forms the address."""
    registers = {"rdi": 0, "rax": 0, "rcx": 2, "rsp": 0x7FFC_0000_0000, "trapno": 14}
    found = report(tmp_path, Box(pid=101), addr=0x18, code_bytes=bytes.fromhex(code), registers=registers).fault
    assert found is not None and (found.expression, found.expression_found) == (expression, "exact")


@pytest.mark.parametrize(
    ("registers", "expression"),
    [
        ({"rdi": 0x7F50_0000_0000}, "rdi + 0x18"),
        ({"rdi": 0x7F50_0000_0000, "rsi": 0x7F50_0000_0008}, None),
        ({"rdi": 0x7F40_0000_0000}, None),
    ],
    ids=["one", "two", "none"],
)
def test_expression_is_guessed_from_a_single_register(
    registers: dict[str, int], expression: str | None, tmp_path: Path
) -> None:
    """Without the machine code; never among several."""
    found = report(tmp_path, Box(pid=101), addr=0x7F50_0000_0018, registers=registers).fault
    assert found is not None
    assert (found.expression, found.expression_found) == (expression, "guessed" if expression else None)


def test_cycle_of_a_deep_stack_is_found_across_the_gap(tmp_path: Path) -> None:
    """One frame, then two that repeat; the last two of the outermost frames are not part of it."""
    cycle = process(c.overflow(tmp_path)).stack_cycle
    assert cycle is not None
    assert [frame.offset for frame in cycle.frames or []] == ["0x1100", "0x2500"]
    assert (cycle.first, cycle.depth, cycle.repeats) == (1, 24834, (24834 - 1 - 2) // 2)


def test_flat_stacks_have_no_cycle(tmp_path: Path) -> None:
    """The interpreter's own frames repeat on every stack."""
    native = [(s.PYTHON, 0x5500)] * 40
    assert report(tmp_path, Box(pid=101), native=native).stack_cycle is None


def test_threads_that_crashed_as_well_and_refused_help_are_told(tmp_path: Path) -> None:
    """With signal and address; the helper's error is a note."""
    found = report(tmp_path, Box(pid=101), also=[(102, 11, 1, 0x55, 0x66)], helper=(5, 1))
    assert [(a.tid, a.signal, a.code, a.addr) for a in found.also_crashed or []] == [
        (102, "SIGSEGV", "SEGV_MAPERR", "0x66")
    ]
    assert any("ptrace" in note and "not permitted" in note for note in found.notes or [])


WILD = 0x4141_4141_4141_4141
SP = 0x7FFC_0000_1000


@needs_capstone
@pytest.mark.parametrize(
    ("code", "registers", "word", "expected"),
    [
        ("c3", {}, WILD, ("0x4141414141414141", "execute")),
        ("c3", {}, None, (None, "execute")),
        ("ffd0", {"rax": WILD}, None, ("0x4141414141414141", "execute")),
        ("8b4718", {"rdi": WILD}, None, ("0x4141414141414159", "read")),
    ],
    ids=["return", "return, stack unknown", "call", "load"],
)
def test_address_that_the_processor_hides_is_worked_out(
    code: str, registers: dict[str, int], word: int | None, expected: tuple[str | None, str], tmp_path: Path
) -> None:
    """A general-protection fault has no address: the target of the branch or the operand is used."""
    memory = [] if word is None else [("rsp", SP, SP, word.to_bytes(8, "little"))]
    found = report(
        tmp_path, Box(pid=101), code=128, addr=0, error_code=0, code_bytes=bytes.fromhex(code), memory=memory,
        registers={"rsp": SP, "trapno": 13, **registers},
    ).fault  # fmt: skip
    assert found is not None
    assert (found.addr, found.access, found.kind) == (*expected, "non-canonical")
