"""Line tables of DWARF: one of Triton's as it was loaded, and damaged and hostile ones."""

from __future__ import annotations

import random
import time

import pytest

from pytracer.decode.symbols.dwarf_lines import LONGEST_TABLE, source_line

# .debug_line of a kernel of Triton 3.6 for sm_90, of a core dump; the lines are those that nvdisasm prints.
TABLE = bytes.fromhex(
    "6b00000002003c0000000101fb0e0a0001010101000000012f686f6d652f757365722f747269746f6e2f7372630000747269"
    "746f6e5f6661722e70790001bcf89ed806a20300000902000f7ac3867f00000401030401f0f0f0037f02e00001f0f0edf003"
    "0102c0000102f003000101"
)
START = 0x7F86C37A0F00


@pytest.mark.parametrize(
    ("offset", "line"),
    [(0x00, 5), (0x10, 6), (0x20, 7), (0x30, 8), (0x8F, 8), (0x90, 7), (0xA0, 8), (0xB0, 9), (0xC0, 7), (0xD0, 8),
     (0xF0, 8), (0x110, 9), (0x2FF, 9)],
)  # fmt: skip
def test_lines_of_instructions(offset: int, line: int) -> None:
    """Each row holds until the next one."""
    assert source_line(TABLE, START + offset) == ("/home/user/triton/src/triton_far.py", line)


def test_addresses_outside_have_none() -> None:
    """Before the first row, and where the sequence ends; a table without its relocations begins at 0."""
    assert source_line(TABLE, START - 1) is None
    assert source_line(TABLE, START + 0x300) is None
    assert source_line(TABLE, 0x30) is None


def test_the_second_unit_is_read() -> None:
    """A table has one for each compilation."""
    other = TABLE.replace(START.to_bytes(8, "little"), (0x1000).to_bytes(8, "little"))
    assert source_line(other + TABLE, START + 0xF0) == source_line(TABLE, START + 0xF0)


@pytest.mark.parametrize("version", [0, 1, 5, 99])
def test_other_versions_have_none(version: int) -> None:
    """DWARF 5 has other headers."""
    assert source_line(TABLE[:4] + version.to_bytes(2, "little") + TABLE[6:], START + 0xF0) is None


def test_damaged_tables_are_survived() -> None:
    """Truncated anywhere, and with random bytes."""
    rng = random.Random(1)
    for size in range(len(TABLE)):
        assert source_line(TABLE[:size], START + 0xF0) is None
    for _ in range(2000):
        damaged = bytearray(TABLE)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        source_line(bytes(damaged), START + 0xF0)


def test_a_hostile_table_ends_soon() -> None:
    """A number without an end, and a million instructions."""
    header = TABLE[10 : 10 + int.from_bytes(TABLE[6:10], "little")]
    for filler in (b"\x80", b"\x01", b"\xf0", b"\x02\x7f"):
        program = filler * ((LONGEST_TABLE - 200) // len(filler))
        body = b"\x02\x00" + len(header).to_bytes(4, "little") + header + program
        began = time.process_time()
        source_line(len(body).to_bytes(4, "little") + body, START)
        assert time.process_time() - began < 5
    assert source_line((4 << 20).to_bytes(4, "little") + bytes(4 << 20), START) is None
