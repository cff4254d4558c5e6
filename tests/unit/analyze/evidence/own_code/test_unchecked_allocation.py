"""Memory of malloc() that C uses without a check: by the source, with the empty array that made its size absurd."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.unchecked_allocation import unchecked_allocation
from pytracer.decode.types.snapshot import HeldArray, PythonFrame
from pytracer.report.job import NativeFrame, SourceLine

SOURCE = """#include <stdlib.h>
long thin(const float *xyz, const int *kinds, long n, float step, int *keep) {
    float low = 1e30f, high = -1e30f; size_t cells = 1;
    for (long i = 0; i < n; i++) { low = fminf(low, xyz[i]); high = fmaxf(high, xyz[i]); }
    size_t wide = (size_t)((long)((high - low) / step) + 1);
    {allocation}
    {check}
    {use}
    return 0;
}
"""
PROGRAM = """import numpy as np


class Thin:
    def __call__(self, xyz, kinds):
        keep = np.zeros(len(kinds), np.int32)
        return self.fn({given})


def prepare(scans, thin):
    for xyz, kinds in scans:
        known = np.isin(kinds, [2, 4])
        {filter}
        thin(xyz, kinds)


prepare(1, Thin())
"""
FILTER = "xyz, kinds = np.ascontiguousarray(xyz[known]), kinds[known]"
GIVEN = "xyz, kinds, len(xyz), 0.5, keep"
ALLOCATION = "int *first = malloc(wide * sizeof(int));"


def view_of(
    folder: Path,
    *,
    allocation: str = ALLOCATION,
    check: str = ";",
    use: str = "for (size_t c = 0; c < wide; c++) first[c] = -1;",
    given: str = GIVEN,
    kept: str = FILTER,
    rows: int = 0,
    access: str = "write",
    inner: str | None = None,
    base: int = 0,
) -> Any:
    """A process that died in a C function at its line `use`; `inner`: a function of libc that it called there."""
    file, library, program = folder / "thin.c", folder / "libthin.so", folder / "train.py"
    text = SOURCE
    for name, words in (("allocation", allocation), ("check", check), ("use", use)):
        text = text.replace(f"{{{name}}}", words)
    file.write_text(text, encoding="utf-8")
    library.write_bytes(b"")
    program.write_text(PROGRAM.format(given=given, filter=kept), encoding="utf-8")
    os.utime(file, (1000, 1000))
    frame = PythonFrame("Thin.__call__", str(program), 7)
    stack = (frame, PythonFrame("prepare", str(program), 14), PythonFrame("<module>", str(program), 17))
    own = [NativeFrame(function="thin", image=str(library), lines=[SourceLine("thin", str(file), 8)])]
    libc = [NativeFrame(function=inner, image="/lib/x86_64-linux-gnu/libc.so.6")] if inner is not None else []
    arrays = tuple(
        HeldArray(name, 0x5600_0000_0000 + n, "float32", shape, (12, 4)[: len(shape)], frame, 0)
        for n, (name, shape) in enumerate((("xyz", (rows, 3)), ("kinds", (rows,)), ("keep", (rows,))))
    )
    crash = SimpleNamespace(
        arrays=arrays, numbers=(), holders=(), arguments=(), python_stack=stack, python_threads=(), native_stack=(),
        registers={}, images=(SimpleNamespace(path=str(library), start=1, end=2),),
    )  # fmt: skip
    snapshot = SimpleNamespace(pid=1, threads=(), argv=(), created_wall_ns=time.time_ns() + 10**9, version=(1, 9))
    return SimpleNamespace(
        native_stack=[*libc, *own], crash=crash, process=SimpleNamespace(snapshot=snapshot), python_stack=None,
        region_python=(), place=SimpleNamespace(addr=0, kind="null"), fault=SimpleNamespace(access=access),
        instruction=SimpleNamespace(base="rax", base_value=base), space=SimpleNamespace(live_around=lambda addr: None),
    )  # fmt: skip


def test_memory_without_a_check_is_named_with_the_array_that_is_empty_and_the_filter(tmp_path: Path) -> None:
    found = unchecked_allocation(view_of(tmp_path))
    assert found is not None
    assert found.summary == (
        "`first`, which thin.c:6 makes by malloc() for `wide` elements of int, is not checked; line 7 passes `xyz` "
        "[0, 3], which is empty, as line 13 in prepare() keeps only the rows with `known` (line 12: `known = "
        "np.isin(kinds, [2, 4])`), and there are none"
    )
    assert found.advice == (
        "Leave out the case of no elements before line 14 (`if len(xyz) == 0: continue`): thin() computes `wide` from "
        "an empty array. Let it return at once for `n` == 0, and check what malloc() returns at thin.c:6: it is null "
        "for a size that cannot be had, and thin.c:8 uses it."
    )


def test_array_that_is_empty_for_another_reason_is_named_without_one(tmp_path: Path) -> None:
    found = unchecked_allocation(view_of(tmp_path, kept="pass"))
    assert found is not None and found.summary.endswith("line 7 passes `xyz` [0, 3], which is empty")
    assert "before line 7 (`len(xyz) == 0`)" in found.advice


@pytest.mark.parametrize(
    "how",
    [
        {"rows": 5},
        {"allocation": "int *first = malloc(MOST * sizeof(int));"},  # the size has nothing to do with it
    ],
)
def test_arrays_that_are_not_the_reason_are_left_out(how: dict[str, Any], tmp_path: Path) -> None:
    found = unchecked_allocation(view_of(tmp_path, **how))
    assert found is not None and not found.empty and "passes" not in found.summary
    assert "returned null for it" in found.advice and found.advice.startswith("Check how `")


@pytest.mark.parametrize(("step", "told"), [("-1", "; line 7 passes `-1`"), ("4", "is not checked")])
def test_number_that_is_no_size_is_named(step: str, told: str, tmp_path: Path) -> None:
    view = view_of(tmp_path, rows=5, given=GIVEN.replace("0.5", step))
    found = unchecked_allocation(view)
    assert found is not None and found.summary.endswith(told)


@pytest.mark.parametrize(
    "how",
    [
        {"allocation": "int *first = (int *)calloc(wide, sizeof *first);"},
        {"allocation": "int *first = NULL; first = malloc(sizeof(int) * wide);"},
        {"use": "memset(first, -1, wide * sizeof(int));", "inner": "__memset_avx2_unaligned_erms"},
        {"use": "int start = first[0];", "access": "read"},
        {"use": "*first = 1;"},
        {"use": "first[0].next = 1;"},
    ],
)
def test_each_use_and_each_way_to_make_it_is_known(how: dict[str, Any], tmp_path: Path) -> None:
    found = unchecked_allocation(view_of(tmp_path, **how))
    assert found is not None and [item.name for item in found.empty] == ["xyz"]


@pytest.mark.parametrize(
    "how",
    [
        {"check": "if (!first) return -1;"},
        {"check": "if (first == NULL) { abort(); }"},
        {"check": "assert(first);"},
        {"check": "CHECK_MEMORY(first);"},
        {"use": "if (first) first[0] = 1;"},
        {"use": "keep[0] = 1;"},  # a parameter
        {"use": "keep[0] = first[0];"},  # what is written is a parameter
        {"use": "int start = first[0] + kinds[0];", "access": "read"},  # which of both?
        {"check": "if (n > 5) first = other;"},
        {"check": "first++;"},
        {"allocation": "int *first = new int[wide];"},  # throws
        {"allocation": "int *first = pool_get(wide);"},
        {"base": 0x1000},
        {"allocation": "int *first = NULL; if (n > 9) first = malloc(wide * sizeof(int));"},  # null without malloc()
        {"allocation": "int *first = NULL; if (n > 9) { first = malloc(wide * sizeof(int)); }"},
        {"allocation": "int *first; if (!(first = malloc(wide * sizeof(int)))) wide = 0;"},
        {"allocation": f"{ALLOCATION} free(first); first = NULL;"},
    ],
)
def test_pointer_that_is_checked_or_may_be_another_is_not_named(how: dict[str, Any], tmp_path: Path) -> None:
    assert unchecked_allocation(view_of(tmp_path, **how)) is None


@pytest.mark.parametrize(
    "how",
    [
        {"use": "first[0] = a.kinds[2];", "access": "read"},
        {"use": "first[0] = kinds2(2)[1];", "access": "read"},
        {"use": "first[0] = other;", "access": "read"},
        {"allocation": "int *first = malloc(n * sizeof(int));", "use": "first[0] = -1;"},
    ],
    ids=["a member is read", "what a function returns is read", "it is only set, and something was read", "n is 0"],
)
def test_another_pointer_of_the_line_or_a_common_size_may_be_it(how: dict[str, Any], tmp_path: Path) -> None:
    """The look-alikes; malloc(0) is not null in glibc."""
    how = {**how, "given": "xyz, kinds, 0, 0.5, keep"} if "allocation" in how else how
    assert unchecked_allocation(view_of(tmp_path, **how)) is None
