"""What the program's own C divided by when that was 0: the argument or the array, and what does not mean one."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.native_divisor import native_divisor
from pytracer.decode.types.snapshot import HeldArray, HeldNumber, PythonFrame
from pytracer.report.job import NativeFrame, SourceLine

SOURCE = """#include <stdlib.h>
static int below(int end) { return rand() % end; }
void draw(const long *starts, const int *counts, int rows, int groups, int *out) {
    int per = rows / groups;
    for (int g = 0; g < groups; g++) {
        int n = (int)(starts[g + 1] - starts[g]);
        out[g] = below(n) + per;
    }
}
int pick(const int *counts, int k) {
    return rand() % counts[k];
}
int fold(int rows, int groups) {
    return rows % (groups - 1);
}
"""
PROGRAM = """def sample(lib, starts, counts, rows, groups, out):
    {call}


def step(lib, starts, counts, size, rate, out):
    sample(lib, starts, counts, size, size // rate, out)


step(1, 2, 3, 4, 5, 6)
"""
CALL = "lib.draw(starts.ctypes.data, counts.ctypes.data, rows, groups, out.ctypes.data)"


def view_of(
    folder: Path,
    lines: Sequence[int] | None,
    *,
    call: str = CALL,
    function: str = "draw",
    source: str = SOURCE,
    **numbers: Any,
) -> Any:
    """A process that died of a division in a C function; `lines`: of the fault, innermost first, where known."""
    file, library, program = folder / "ops.c", folder / "libops.so", folder / "train.py"
    file.write_text(source, encoding="utf-8")
    library.write_bytes(b"")
    program.write_text(PROGRAM.format(call=call), encoding="utf-8")
    os.utime(file, (1000, 1000))
    inner, outer = PythonFrame("sample", str(program), 2), PythonFrame("step", str(program), 6)
    at = [SourceLine(function=function, file=str(file), line=line) for line in lines or ()]
    own = NativeFrame(function=function, image=str(library), lines=at or None)
    arrays = tuple(
        HeldArray(name, data, dtype, (64,), (8 if dtype == "int64" else 4,), inner, 0)
        for name, data, dtype in (("starts", 0x7F00_0000, "int64"), ("counts", 0x7F01_0000, "int32"))
    )
    held = tuple(
        HeldNumber(name.removeprefix("outer_"), value, outer if name.startswith("outer_") else inner, 0)
        for name, value in numbers.items()
    )
    crash = SimpleNamespace(
        arrays=arrays, numbers=held, holders=(), arguments=(), python_stack=(inner, outer), python_threads=(),
        registers={}, images=(SimpleNamespace(path=str(library), start=1, end=2),), native_stack=(),
    )  # fmt: skip
    snapshot = SimpleNamespace(pid=1, threads=(), argv=(), created_wall_ns=time.time_ns() + 10**9, version=(1, 9))
    return SimpleNamespace(
        native_stack=[own], crash=crash, process=SimpleNamespace(snapshot=snapshot), python_stack=None,
        region_python=(), space=SimpleNamespace(live_around=lambda addr: None),
    )  # fmt: skip


def test_argument_that_the_line_of_the_fault_divides_by_is_named_with_the_line_that_made_it(tmp_path: Path) -> None:
    """Whatever else is 0: `rows` divides nothing."""
    found = native_divisor(view_of(tmp_path, [4], rows=0, groups=0, outer_size=3, outer_rate=8))
    assert found is not None
    assert found.words == ("`rows / groups` with `groups` = 0, which line 2 passes: `size // rate` (line 6) is 3 // 8")
    assert found.advice == (
        "Keep `groups` from being 0, which line 2 passes: it comes from line 6 (`size // rate`), here 3 // 8, which "
        "rounds down: max(1, ...) keeps it positive, or leave out the call where it is 0. ops.c:4 divides by it "
        "without a check."
    )


def test_difference_of_two_elements_is_named_with_the_array(tmp_path: Path) -> None:
    """By the lines of the call and of the function that the compiler put into it."""
    found = native_divisor(view_of(tmp_path, [2, 7], rows=9, groups=3))
    assert found is not None
    assert found.words == (
        "`rand() % end`, where `end` is `(int)(starts[g + 1] - starts[g])`: two adjacent elements of `starts` [64], "
        "which line 2 passes, are equal"
    )
    assert "`(np.diff(starts) == 0).nonzero()`" in found.advice


def test_without_lines_the_only_division_by_no_known_number_is_meant(tmp_path: Path) -> None:
    """And its sentence says that this is by the source."""
    found = native_divisor(view_of(tmp_path, None, rows=9, groups=3))
    assert found is not None and found.names == ("starts",)
    assert found.words.startswith("by its source that is `rand() % end` (ops.c:2), where")


def test_element_of_an_array_is_named(tmp_path: Path) -> None:
    found = native_divisor(view_of(tmp_path, [11], function="pick", call="lib.pick(counts.ctypes.data, 3)"))
    assert found is not None
    assert found.words == "`rand() % counts[k]`: an element of `counts` [64], which line 2 passes, is 0"


def test_numbers_of_a_sum_are_said(tmp_path: Path) -> None:
    found = native_divisor(view_of(tmp_path, [14], function="fold", call="lib.fold(rows, groups)", rows=9, groups=1))
    assert found is not None
    assert found.words == "`rows % (groups - 1)` with `groups` = 1, which line 2 passes"
    assert found.advice.startswith("Keep `groups - 1` from being 0, where line 2 passes `groups` = 1: ops.c:14 divides")


def test_product_that_is_cut_to_a_whole_number_is_said_to_round_down(tmp_path: Path) -> None:
    """In a body of an OpenMP loop, which has a name of its own."""
    call = f"groups = int(rows * 0.25)\n    {CALL}"
    view = view_of(tmp_path, [4], call=call, function="draw._omp_fn.0", rows=3, groups=0)
    inner = view.crash.python_stack[0]
    view.crash.python_stack = (PythonFrame(inner.function, inner.file, 3), view.crash.python_stack[1])
    found = native_divisor(view)
    assert found is not None and found.advice.startswith(
        "Keep `groups` from being 0, which line 3 passes: it comes from line 2 (`int(rows * 0.25)`), which rounds down"
    )


def test_number_that_is_0_in_32_bits_is_not_said_to_be_0(tmp_path: Path) -> None:
    """The look-alike: what the line passes is no 0, and the division by it is not left out."""
    found = native_divisor(view_of(tmp_path, [4], rows=9, groups=1 << 32))
    assert found is not None and found.zero is None


@pytest.mark.parametrize(
    ("lines", "source", "numbers"),
    [
        (None, SOURCE, {"rows": 9}),
        (None, f'#include "own.h"\n{SOURCE}', {"rows": 9, "groups": 3}),
        ([4], SOURCE, {"rows": 9, "groups": 3}),
        (None, SOURCE.replace("below(n) +", "(n ? below(n) : 0) +"), {"rows": 9, "groups": 3}),
    ],
    ids=["two may be it", "a header may have others", "a number that is no 0", "tested"],
)
def test_no_divisor_is_named(lines: list[int] | None, source: str, numbers: dict[str, Any], tmp_path: Path) -> None:
    """The look-alikes: what is known of the divisions leaves none, or more than one."""
    assert native_divisor(view_of(tmp_path, lines, source=source, **numbers)) is None


GROUPS = """void draw(const long *starts, const int *counts, int rows, int groups, int *out) {
    for (int k = 0; k < rows; k++) {
        long at = counts[k];
        out[k] = rows % (starts[at + 1] - starts[at]);
    }
}
"""


@pytest.mark.parametrize(
    ("source", "named"),
    [
        (GROUPS, "counts"),
        (GROUPS.replace("[at", "[counts[k]"), "counts"),
        (GROUPS.replace("at = counts[k]", "at = k"), None),
        (GROUPS.replace("counts[k];", "counts[k]; at++;"), None),
    ],
    ids=["by a variable", "by an element itself", "every group", "changed between"],
)
def test_array_whose_elements_number_the_groups_is_named(source: str, named: str | None, tmp_path: Path) -> None:
    """Where a loop goes through all groups, none is."""
    found = native_divisor(view_of(tmp_path, [4], source=source, rows=9, groups=3))
    assert found is not None and found.array is not None and found.differs
    assert found.words.endswith(f"so that the group of an element of `{named}` is empty" if named else "are equal")
    assert (f"Leave these out of `{named}`," if named else "Leave these out, or") in found.advice
