"""AArch64: instructions, syndromes, addresses."""

from __future__ import annotations

import struct

import pytest

from pytracer.analyze.platform.aarch64 import abort_access, decode_aarch64, extension_of, has_address, untagged
from pytracer.analyze.platform.addresses import exists, without_tag
from tests.conditions import needs_capstone

HEAP = 0xFFFF_8000_1000  # Linux maps memory from the top of 48 bits on down
REGISTERS = {"x0": HEAP, "x1": HEAP, "x2": 3, "x3": 0xFFFF_FFFF, "sp": 0xFFFF_FFFF_E000, "x30": 0x4000}


@needs_capstone
@pytest.mark.parametrize(
    ("word", "text", "access", "size", "addr"),
    [
        (0xF9405820, "ldr x0, [x1, #0xb0]", "read", 8, HEAP + 0xB0),
        (0xB8227820, "str w0, [x1, x2, lsl #2]", "write", 4, HEAP + 12),
        (0xBC63D820, "ldr s0, [x1, w3, sxtw #2]", "read", 4, HEAP - 4),
        (0xBC635820, "ldr s0, [x1, w3, uxtw #2]", "read", 4, HEAP + 4 * 0xFFFF_FFFF),
        (0xF85F8020, "ldur x0, [x1, #-8]", "read", 8, HEAP - 8),
        (0xA8C17BFD, "ldp x29, x30, [sp], #0x10", "read", 16, 0xFFFF_FFFF_E000),
        (0xA9BE07E0, "stp x0, x1, [sp, #-0x20]!", "write", 16, 0xFFFF_FFFF_DFE0),
        (0x3CC10420, "ldr q0, [x1], #0x10", "read", 16, HEAP),
        (0x38626820, "ldrb w0, [x1, x2]", "read", 1, HEAP + 3),
        (0xB9800420, "ldrsw x0, [x1, #4]", "read", 4, HEAP + 4),
        (0x889FFC20, "stlr w0, [x1]", "write", 4, HEAP),
        (0xC8DFFC20, "ldar x0, [x1]", "read", 8, HEAP),
        (0xC8007C22, "stxr w0, x2, [x1]", "write", 8, HEAP),
        (0x4C00A820, "st1 {v0.4s, v1.4s}, [x1]", "write", None, HEAP),
        (0x58000200, "ldr x0, #0x4040", "read", 8, 0x4040),
        (0xD50B7421, "dc zva, x1", "write", None, HEAP),
        (0xF820005F, "stadd x0, [x2]", None, 8, 3),
    ],
)
def test_operands_give_the_address(word: int, text: str, access: str | None, size: int | None, addr: int) -> None:
    """Offsets, scaled and extended indexes, changes of the base before and after, literals, zeroing of cache lines."""
    found = decode_aarch64(struct.pack("<I", word), REGISTERS, 0x4000)
    assert found is not None
    assert (found.text, found.access, found.size, found.addr) == (text, access, size, addr)


@needs_capstone
def test_an_instruction_that_reads_and_writes_does_not_decide_which_was_refused() -> None:
    """LSE's atomics: the syndrome knows."""
    found = decode_aarch64(struct.pack("<I", 0xF8200041), REGISTERS, 0x4000)
    assert found is not None and found.text == "ldadd x0, x1, [x2]"
    assert (found.access, found.addr) == (None, 3)


@needs_capstone
def test_a_tag_in_the_base_is_no_part_of_the_address() -> None:
    """MTE and HWASan keep one in the upper byte; the kernel reports the address without it."""
    found = decode_aarch64(struct.pack("<I", 0xF9405820), {"x1": HEAP | 0x5A << 56}, 0x4000)
    assert found is not None
    assert (found.addr, found.base_value) == (HEAP + 0xB0, HEAP | 0x5A << 56)


@needs_capstone
def test_missing_registers_and_vectors_of_unknown_length_leave_the_address_unknown() -> None:
    """Nothing is guessed."""
    for word in (0xF9405820, 0xA540A421):  # ldr x0, [x1, #0xb0]; ld1w {z1.s}, p1/z, [x1] with registers missing
        found = decode_aarch64(struct.pack("<I", word), {}, 0x4000)
        assert found is not None and found.addr is None
    found = decode_aarch64(struct.pack("<I", 0xA541A421), REGISTERS, 0x4000)
    assert found is not None and "mul vl" in found.text and found.addr is None


def test_no_bytes_give_nothing() -> None:
    """Code that could not be read."""
    assert decode_aarch64(b"", {}, 0) is None and decode_aarch64(b"\x20\x58", {}, 0) is None


def test_the_syndrome_tells_the_access() -> None:
    """Classes 0x20 and 0x24 only; WnR of cache maintenance is always set, and says nothing."""
    read, write, fetch = 0x92000006, 0x92000046, 0x82000006
    assert [abort_access(item) for item in (read, write, fetch)] == ["read", "write", "execute"]
    assert [abort_access(item) for item in (None, 0x92000146, 0x02000000, 0xF2000001)] == [None] * 4


def test_addresses_have_at_most_52_bits_below_an_ignored_byte() -> None:
    """Of a process: bit 55 is 0. Of the kernel: all upper bits are 1."""
    assert has_address(HEAP) and has_address(1 << 51) and has_address(0xFFFF_0000_0000_0000)
    assert not has_address(0xDEAD_BEEF_0000_0000) and not has_address(0x0041_4141_4141_4141)
    assert untagged(0x5A00_FFFF_8000_1000) == HEAP and has_address(0x5A00_FFFF_8000_1000)
    assert untagged(0xFFFF_0000_0000_0000) == 0xFFFF_0000_0000_0000


def test_each_processor_has_its_own_addresses() -> None:
    """What is memory on aarch64 is not canonical on x86-64; only aarch64 ignores the upper byte."""
    assert exists("aarch64", HEAP) and not exists("x86-64", HEAP) and exists("unknown (7)", HEAP)
    assert [without_tag(arch, 0x5A << 56 | 1) for arch in ("aarch64", "x86-64")] == [1, 0x5A << 56 | 1]


@pytest.mark.parametrize(
    ("text", "extension"),
    [
        ("ldaddal w0, w1, [x2]", "LSE, the atomics of ARMv8.1"),
        ("casal x0, x1, [x2]", "LSE, the atomics of ARMv8.1"),
        ("ld1w {z0.s}, p0/z, [x1, x2, lsl #2]", "SVE"),
        ("sdot v0.4s, v1.16b, v2.16b", "dot products of ARMv8.2"),
        ("ldr x0, [x1]", None),
        ("ldxr x0, [x1]", None),
        ("add x0, x1, x2", None),
    ],
)
def test_optional_instructions_are_named(text: str, extension: str | None) -> None:
    """And those of every processor are not."""
    assert extension_of(text) == extension
