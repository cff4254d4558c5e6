"""Arrays that claim more than there is, of memory that no variable held, and those that may be right."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.snapshot import HeldArray, HeldNumber, PythonFrame, Unmapping
from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support.deaths import PROGRAM, advice, died, evidence, summary, verdict
from tests.support.synth import Box

pytestmark = needs_capstone

DATA, THERE = 0x7F00_0000_0010, 0x40_0FF0  # an image of 1024 x 1024, and the rest of its last page
END = DATA + THERE
MAPPED = (DATA - 16, END, "rw-p", 0, "")
OTHERS = (END + 0x1000_0000, END + 0x1000_1000, "rw-p", 0, "")
LOAD = bytes.fromhex("8b02")  # mov eax, dword ptr [rdx]
TILES = """import numpy as np
from numpy.lib.stride_tricks import as_strided
def tiles(a, shape, step):
    {}
    return as_strided(a, shape=shape, strides=strides)
class Grid:
    def __init__(self, a, step):
        self.cells = tiles(a, (7, 7, 256, 256), step)
    def __getitem__(self, i, j):
        return np.array(self.cells[i, j])
"""
SHAPE = (7, 7, 256, 256)  # every 128, which just fits
SWAPPED, RIGHT = (4096, 4, 524288, 512), (524288, 512, 4096, 4)
SUM = "strides = a.strides + a[::step, ::step].strides"
FAULT = END + 0x10


def crashed(run: Path, source: str, shape: Any, strides: Any, addr: int = FAULT, **how: Any) -> Report:
    """The last line of `source` read `self.cells`, and died."""
    file = run / "train.py"
    file.write_text(source, encoding="utf-8")
    past = time.time() - 10**9  # before the recorded process began
    os.utime(file, (past, past))
    line = len(source.splitlines())
    at = PythonFrame("Grid.__getitem__", str(file), line)
    how = {"mappings": [PROGRAM, MAPPED, OTHERS], **how}
    held = HeldArray("self.cells", how.pop("data", DATA), "float32", shape, strides, at, 0)
    numbers = [HeldNumber(name, value, at, 0) for name, value in how.pop("numbers", {}).items()]
    return died(
        run, addr=addr, registers={"rdx": addr}, code_bytes=LOAD, python=[("Grid.__getitem__", str(file), line)],
        arrays=(held,), numbers=tuple(numbers), **how,
    )  # fmt: skip


def test_a_view_is_named_though_no_variable_held_its_array(run: Path) -> None:
    """Its claim, what is there at most, and the order of the strides that would fit."""
    report = crashed(run, TILES.format(SUM), SHAPE, SWAPPED)
    assert verdict(report) == ("out-of-bounds", "likely")
    assert summary(report).endswith(
        "`self.cells`, shape [7, 7, 256, 256] and strides (4096, 4, 524288, 512) by as_strided() at line 5, reaches "
        "127.6 MiB from its first byte, of which at most 4.0 MiB exist; in another order its strides would fit."
    )
    assert advice(report).startswith(
        "Correct the strides at line 4 (`a.strides + a[::step, ::step].strides`): with the strides in the order "
        "(524288, 512, 4096, 4), as with `a[::step, ::step].strides` before `a.strides`, it would reach 4.0 MiB, "
        "which fit."
    )
    assert f"ends after {THERE}" in evidence(report)


@pytest.mark.parametrize(
    ("made", "parts"),
    [
        ("strides = (4096, 4) + (512 * a.shape[1], 512)", True),
        ("strides = (4096,) + (4, 512 * a.shape[1], 512)", False),
        ("strides = (4096, 4, 524288, 512)", False),
    ],
    ids=["halves", "of other lengths", "no sum"],
)
def test_parts_are_only_swapped_where_they_are_those(made: str, parts: bool, run: Path) -> None:
    said = advice(crashed(run, TILES.format(made), SHAPE, SWAPPED))
    assert "in the order (524288, 512, 4096, 4)" in said and (", as with " in said) == parts


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((9, 7, 256, 256), RIGHT), ((400, 6000), (4, 1600)), ((6000, 400), (1600, 4))],
    ids=["too many in order", "windows last", "windows first"],
)
def test_no_other_order_is_named_where_too_many_were_asked_for(shape: Any, strides: Any, run: Path) -> None:
    """Of windows that are too many, another order reads but a part of what is there."""
    report = crashed(run, TILES.format(SUM), shape, strides)
    assert verdict(report) == ("out-of-bounds", "likely") and "another order" not in summary(report)
    assert advice(report).startswith("Correct the shape or the strides at line 5.")


@pytest.mark.parametrize("addr", [FAULT, END + 0x1234])
def test_an_array_that_overlaps_itself_is_possible_without_the_line_that_made_it(addr: int, run: Path) -> None:
    """Rather than a pointer that is wrong, as which the address alone would be likely."""
    source = TILES.format(SUM).replace("tiles(a, (7, 7, 256, 256), step)", "load(a)")
    report = crashed(run, source, SHAPE, SWAPPED, addr, box=Box(pid=101, ppid=99).alloc(1 << 40, 64))
    assert verdict(report) == ("out-of-bounds", "possible")
    assert "at most 4.0 MiB exist" in summary(report) and "as_strided() at" not in summary(report)
    assert "that memory was given back" in advice(report)


GIVEN_BACK = Unmapping(DATA + 0x10_0000, 0x1000_0000, 0, 1, 0, ())


@pytest.mark.parametrize(
    ("shape", "strides", "how"),
    [
        (SHAPE, SWAPPED, {"mappings": [PROGRAM, OTHERS]}),
        (
            SHAPE,
            SWAPPED,
            {"addr": END + 0x2000, "mappings": [PROGRAM, MAPPED, (END + 0x1000, END + 0x3000, "r--p", 0, "")]},
        ),
        (SHAPE, SWAPPED, {"addr": DATA + 0x1000_0000}),
        (SHAPE, RIGHT, {}),
        (SHAPE, SWAPPED, {"unmapping": GIVEN_BACK}),
        (
            SHAPE,
            SWAPPED,
            {
                "data": (1 << 46) + 16,
                "addr": (1 << 46) + 0x2_0010,
                "mappings": [
                    PROGRAM,
                    (1 << 46, (1 << 46) + 0x2_0000, "rw-p", 0, ""),
                    ((1 << 46) + 0x2_0000, (1 << 46) + (64 << 20), "---p", 0, ""),
                ],
            },
        ),
    ],
    ids=["gone as a whole", "readable", "elsewhere", "fits", "given back", "a heap took its place"],
)
def test_other_faults_are_not_the_array_s(shape: Any, strides: Any, how: dict[str, Any], run: Path) -> None:
    report = crashed(run, TILES.format(SUM), shape, strides, **how)
    assert "from its first byte" not in summary(report)


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((4096, 1024), (4096, 4)), ((1024, 4096), (4, 4096)), ((2048, 512), (8192, 8)), ((4096, 8, 1024), (4096, 0, 4))],
    ids=["in a row", "transposed", "every second", "broadcast"],
)
def test_what_slicing_makes_is_silent_without_the_line(shape: Any, strides: Any, run: Path) -> None:
    source = TILES.format(SUM).replace("tiles(a, (7, 7, 256, 256), step)", "load(a)")
    assert "from its first byte" not in summary(crashed(run, source, shape, strides))


NUMPY = "/usr/lib/python3/dist-packages/numpy/core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so"


@pytest.mark.parametrize(
    ("numbers", "said"), [({"i": 0, "j": 3}, True), ({"i": 0}, False), ({"i": 0, "j": 1024}, False)]
)
def test_indices_in_range_are_not_to_be_checked(numbers: dict[str, int], said: bool, run: Path) -> None:
    """Where the access ran to the end of memory, and the array is not known to claim more."""
    source = TILES.format(SUM).replace("tiles(a, (7, 7, 256, 256), step)", "load(a)")
    stack = [(NUMPY, "copy_strided"), (NUMPY, "array_array")]
    report = crashed(run, source, (1024, 1024), (4096, 4), addr=END, numbers=numbers, stack_of=stack)
    words = "`i` = 0 and `j` = 3, by which line 10 indexes it, are in range."
    assert (words in advice(report)) == said
    assert ("too large" in advice(report) or "damaged" in advice(report)) != said
