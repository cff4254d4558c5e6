"""Out of bounds, from the registers that formed the address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import died
from tests.support.synth import Box

pytestmark = needs_capstone

BASE = 0x7F50_0000_0000
BY_FOUR = bytes.fromhex("f30f10048f")  # movss xmm0, dword ptr [rdi + rcx*4]
BY_ONE = bytes.fromhex("0fb6040f")  # movzx eax, byte ptr [rdi + rcx]


def judged(run: Path, box: Box, code: bytes, index: int, **crash: Any) -> Report:
    scale = 4 if code == BY_FOUR else 1
    addr = (BASE + index * scale) % (1 << 64)
    registers = {"rdi": BASE, "rcx": index % (1 << 64)}
    job = s.load(run, box.at(500).crash(addr=addr, code_bytes=code, registers=registers, native=s.NATIVE[:1], **crash))
    return build_report(job)


def told(report: Report) -> tuple[str | None, str | None, str, str]:
    verdict = report.verdict
    assert verdict is not None
    return verdict.class_, verdict.confidence, verdict.summary or "", "\n".join(verdict.evidence or [])


def test_index_into_a_live_storage_is_certain_however_far(tmp_path: Path) -> None:
    """256 MiB past a tensor of 4 KiB, where nothing is near."""
    class_, confidence, summary, evidence = told(judged(tmp_path, Box(pid=101).alloc(BASE, 4096), BY_FOUR, 1 << 26))
    assert (class_, confidence) == ("out-of-bounds", "certain")
    assert "256.0 MiB (268431360 bytes) past the end of a storage of 4096 bytes" in summary
    assert "rdi pointed into that storage; the index in rcx was 67108864, in units of 4 bytes" in evidence
    assert "of which the storage has 1024" in evidence


def test_index_of_32_bits_is_recognized(tmp_path: Path) -> None:
    """A tensor of 2^31 + 2^20 floats, whose last elements have no positive int: it went negative."""
    box = Box(pid=101).alloc(BASE, ((1 << 31) + (1 << 20)) * 4)
    report = judged(tmp_path, box, BY_FOUR, -(1 << 31) + 5)
    evidence = told(report)[3]
    assert "without its sign the index is 2147483653, which is inside: it was computed in 32 bits" in evidence
    assert report.verdict is not None and "Compute the index in 64 bits" in (report.verdict.advice or "")


def test_index_of_32_bits_in_bytes_is_recognized_from_the_first_byte(tmp_path: Path) -> None:
    """A volume of int8: the index is a number of bytes, so only its sign tells."""
    report = judged(tmp_path, Box(pid=101).alloc(BASE, 2_730_000_000), BY_ONE, 2_729_999_999 - (1 << 32))
    assert "without its sign the index is 2729999999, which is inside" in told(report)[3]
    assert report.verdict is not None and "Compute the index in 64 bits" in (report.verdict.advice or "")


def test_bytes_before_a_storage_that_is_too_small_for_the_unsigned_index_are_no_32_bit_one(tmp_path: Path) -> None:
    report = judged(tmp_path, Box(pid=101).alloc(BASE, 2_730_000_000), BY_ONE, -64)
    assert "32 bits" not in told(report)[3]


def test_negative_index_into_a_small_storage_is_no_32_bit_one(tmp_path: Path) -> None:
    """The look-alike: -1 is a plain mistake."""
    report = judged(tmp_path, Box(pid=101).alloc(BASE, 4096), BY_FOUR, -2000)
    assert "32 bits" not in told(report)[3] and "8000 bytes before" in told(report)[2]


def test_index_of_single_bytes_is_only_likely(tmp_path: Path) -> None:
    """It may be the difference of two pointers; the report names what would prove it."""
    report = judged(tmp_path, Box(pid=101).alloc(BASE, 4096), BY_ONE, 1 << 26)
    assert told(report)[:2] == ("out-of-bounds", "likely")
    assert any("not the distance to another object" in item for item in (report.findings or [])[0].missing or [])


def test_difference_to_a_freed_storage_stays_a_use_after_free(tmp_path: Path) -> None:
    """The look-alike: a compiler that adds the distance between two arrays to the pointer into the first."""
    box = Box(pid=101).alloc(BASE, 4096).freed(BASE + (1 << 26), 1 << 20)
    assert told(judged(tmp_path, box, BY_ONE, (1 << 26) + 64))[0] == "use-after-free"


@pytest.mark.parametrize("freed", [False, True])
def test_neighbour_that_was_hit_is_named(tmp_path: Path, freed: bool) -> None:
    """The storage at the address, and what follows it."""
    box = Box(pid=101).alloc(BASE, 4096).alloc(BASE + 12288, 64).later(1)
    box.module("model", [{"fqn": "b", "role": "buffer", "addr": BASE + 12288, "nbytes": 64}])
    if freed:
        box.later(1).freed(BASE + 4096, 8192, None, ("drop", s.SCRIPT, 9))
    class_, _, _, evidence = told(judged(tmp_path, box, BY_FOUR, 1100))
    assert class_ == "out-of-bounds"
    assert "the next storage behind the address is 64 bytes at 0x7f5000003000 (buffer b)" in evidence
    said = "where it went, there had been a storage of 8192 bytes, freed at train.py:9 in drop"
    assert (said in evidence) == freed


@pytest.mark.parametrize(("caller", "says"), [("/lib/libffi.so.8", True), ("/opt/torch/lib/libtorch_cpu.so", False)])
def test_length_of_a_copy_is_what_the_program_passed(caller: str, says: bool, run: Path) -> None:
    """memcpy() by ctypes or an extension. The look-alike: torch copies, and the program passes it no length."""
    box = Box(pid=101, ppid=99).alloc(BASE, 4096)
    stack = [("/lib/libc.so.6", "__memmove_avx512_unaligned_erms"), (caller, "call")]
    report = died(run, box=box, addr=BASE + 8192, registers={"rdi": BASE + 8192}, stack_of=stack, mappings=[])
    assert report.verdict is not None and report.verdict.class_ == "out-of-bounds"
    assert ("Compare the length" in (report.verdict.advice or "")) == says
