"""Deaths on aarch64: the same rules, by other registers, addresses and syndromes."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, died, evidence, finding, image, summary, verdict
from tests.support.synth import Box

HEAP = 0xFFFF_9000_0000  # above 1 << 47, where mmap() begins
READ, WRITE, FETCH = 0x9200_0006, 0x9200_0046, 0x8200_0006  # ESR_EL1: translation faults
LDR_INDEXED = 0xBC627820  # ldr s0, [x1, x2, lsl #2]
LDR_MEMBER = 0xF9405820  # ldr x0, [x1, #0xb0]
LDADD = 0xF8200041  # ldadd x0, x1, [x2]
CODE = image(s.VICTIM)


def on_aarch64(run: Path, word: int, registers: Mapping[str, int], *, box: Box | None = None, **how: Any) -> Report:
    box = box or Box(pid=101, ppid=99, arch="aarch64", page_bytes=65536)
    how = {"error_code": READ, **how}
    return died(run, box=box, code_bytes=struct.pack("<I", word), registers=registers, **how)


def recorded() -> Box:
    return Box(pid=101, ppid=99, arch="aarch64", page_bytes=65536).alloc(HEAP, 4096)


def fault(report: Report) -> Any:
    return next(process.fault for process in report.processes or [] if process.fault is not None)


@needs_capstone
def test_index_into_a_storage_is_found_by_the_operands(tmp_path: Path) -> None:
    """As by x86-64's registers; the memory is above 1 << 47."""
    registers = {"x1": HEAP, "x2": 1 << 26}
    report = on_aarch64(tmp_path, LDR_INDEXED, registers, box=recorded(), addr=HEAP + (4 << 26))
    assert verdict(report) == ("out-of-bounds", "certain")
    assert "x1 pointed into that storage; the index in x2 was 67108864, in units of 4 bytes" in evidence(report)
    assert (fault(report).access, fault(report).size, fault(report).expression) == ("read", 4, "x1 + x2*4")


def test_read_of_a_freed_storage_names_it(tmp_path: Path) -> None:
    """The table of freed storages, at an address that x86-64 does not have."""
    box = Box(pid=101, ppid=99, arch="aarch64").freed(HEAP, 1 << 20)
    report = on_aarch64(tmp_path, LDR_MEMBER, {"x1": HEAP}, box=box, addr=HEAP + 0xB0)
    assert verdict(report)[0] == "use-after-free"
    assert fault(report).addr == f"{HEAP + 0xB0:#x}" and fault(report).kind == "freed-storage"


@needs_capstone
def test_null_with_an_offset_is_certain_when_the_base_is_null(tmp_path: Path) -> None:
    """And a small garbage base is no null."""
    report = on_aarch64(tmp_path / "null", LDR_MEMBER, {"x1": 0}, addr=0xB0)
    assert verdict(report) == ("null-dereference", "certain")
    report = on_aarch64(tmp_path / "garbage", LDR_MEMBER, {"x1": 0x281}, addr=0x331)
    assert verdict(report) == ("wild-pointer", "likely")


@pytest.mark.parametrize(("syndrome", "access"), [(READ, "read"), (WRITE, "write")])
def test_the_syndrome_decides_between_read_and_write(tmp_path: Path, syndrome: int, access: str) -> None:
    """Of an atomic instruction nothing else can."""
    report = on_aarch64(tmp_path, LDADD, {"x2": HEAP}, addr=HEAP, error_code=syndrome)
    assert fault(report).access == access


def test_without_a_syndrome_the_kind_of_an_atomic_access_is_unknown(tmp_path: Path) -> None:
    """qemu's user emulation reports none."""
    report = on_aarch64(tmp_path, LDADD, {"x2": HEAP}, addr=HEAP, error_code=(1 << 64) - 1)
    assert fault(report).access is None


def test_garbage_beyond_the_page_tables_is_no_address(tmp_path: Path) -> None:
    """The kernel reports such an address; x86-64 hides it. Its upper byte is removed: the processor ignores it."""
    report = on_aarch64(tmp_path, LDR_MEMBER, {"x1": 0x4141_4141_4141_4141}, addr=0x0041_4141_4141_41F1)
    assert verdict(report) == ("wild-pointer", "likely")
    assert fault(report).kind == "non-canonical" and fault(report).addr == "0x414141414141f1"
    assert "beyond the 52 bits of aarch64's page tables" in evidence(report)
    assert "x86-64" not in evidence(report)


def test_a_high_address_of_a_process_is_not_called_impossible(tmp_path: Path) -> None:
    """The look-alike: between 1 << 47 and 1 << 48."""
    report = on_aarch64(tmp_path, LDR_MEMBER, {"x1": HEAP}, addr=HEAP + 0xB0)
    assert fault(report).kind == "unmapped"


@needs_capstone
def test_a_tagged_pointer_is_looked_up_without_its_tag(tmp_path: Path) -> None:
    """The register holds a tag of MTE or HWASan, the kernel's address does not."""
    registers = {"x1": HEAP | 0x5A << 56, "x2": 1 << 26}
    report = on_aarch64(tmp_path, LDR_INDEXED, registers, box=recorded(), addr=HEAP + (4 << 26))
    assert verdict(report) == ("out-of-bounds", "certain")
    pointers = {pointer.register: pointer for process in report.processes or [] for pointer in process.pointers or []}
    assert pointers["x1"].kind == "in-storage"


@pytest.mark.parametrize(
    ("link", "words"),
    [(CODE.start + 0x20, "called 0xffff95550000"), (HEAP + 0x555_0000, "returned to 0xffff95550000")],
)
def test_the_link_register_tells_a_call_from_a_return(tmp_path: Path, link: int, words: str) -> None:
    """A call sets it, a return goes to what it holds."""
    target = HEAP + 0x555_0000
    report = on_aarch64(
        tmp_path, 0, {"x30": link, "pc": target}, addr=target, pc=target, error_code=FETCH, images=(CODE,)
    )
    assert verdict(report)[0] == "wild-pointer" and words in summary(report)
    assert fault(report).access == "execute"


@needs_capstone
@pytest.mark.parametrize(("word", "name"), [(LDADD, "LSE, the atomics of ARMv8.1"), (0xA5424020, "SVE")])
def test_an_instruction_of_a_newer_processor_is_named(tmp_path: Path, word: int, name: str) -> None:
    """torch for Neoverse on a Cortex-A72."""
    code = [PROGRAM]
    report = on_aarch64(tmp_path, word, {}, signal=4, addr=0x5555_0000_1000, pc=0x5555_0000_1000, mappings=code)
    assert f"executed an instruction that this processor lacks ({name})" in summary(report)


def test_a_flipped_bit_above_the_process_s_addresses_is_noticed(tmp_path: Path) -> None:
    """Bit 50 of an address of a live storage; and not where two bits differ."""
    one, two = HEAP + 64 | 1 << 50, HEAP + 64 | 3 << 50
    report = on_aarch64(tmp_path / "one", LDR_MEMBER, {"x1": one - 0xB0}, box=recorded(), addr=one)
    assert finding(report, "flipped-bit") is not None
    report = on_aarch64(tmp_path / "two", LDR_MEMBER, {"x1": two - 0xB0}, box=recorded(), addr=two)
    assert finding(report, "flipped-bit") is None
