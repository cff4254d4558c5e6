"""What the reader derives from the crash section: the thread's stack, from the memory map."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.decode.recording.reader import read_box
from tests.support.synth import Box

LOW, HIGH = 0x7F00_0010_0000, 0x7F00_0090_0000
GUARD = (LOW - 0x1000, LOW, "---p", 0, "")
STACK = (LOW, HIGH, "rw-p", 0, "")
FILE = (LOW, HIGH, "rw-p", 0, "/data/weights.bin")


@pytest.mark.parametrize(
    ("sp", "mappings", "expected"),
    [
        (HIGH - 0x100, (GUARD, STACK), (LOW, HIGH)),
        (LOW - 0x80, (GUARD, STACK), (LOW, HIGH)),
        (LOW - 0x80, (STACK,), (LOW, HIGH)),
        (LOW - (64 << 20), (STACK,), None),
        (HIGH - 0x100, (FILE,), None),
    ],
    ids=["inside", "in the guard page", "below, no guard mapped", "far below", "in a mapped file"],
)
def test_stack_is_the_writable_mapping_around_or_above_the_stack_pointer(
    sp: int, mappings: tuple[tuple[int, int, str, int, str], ...], expected: tuple[int, int] | None, tmp_path: Path
) -> None:
    """After an overflow the stack pointer is just below its stack; a wild one belongs to none."""
    path = Box(pid=7).crash(11, LOW - 0x90, registers={"rsp": sp}, mappings=mappings).write(tmp_path / "box.blackbox")
    crash = read_box(path).crash
    assert crash is not None
    assert crash.stack == expected
