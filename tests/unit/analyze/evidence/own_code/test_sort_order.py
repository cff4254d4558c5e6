"""A comparison that is true for equal elements, and sorts that end elsewhere."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.sort_order import SortOrder, sort_order
from pytracer.report.job import NativeFrame, SourceLine

SOURCE = """#include <algorithm>
extern "C" long best(Box *boxes, long n) {
    if (n <= 0) return 0;
    std::sort(boxes, boxes + n, [](const Box &a, const Box &b) { return a.score >= b.score; });
    return n;
}
"""
LOOP = "void std::__introsort_loop<Box*, long, best::{lambda(Box const&, Box const&)#1}>(Box*, Box*, long)"
PARTITION = "__unguarded_partition<Box*, best>"


def ordered(
    run: Path, source: str | None = SOURCE, inner: str | None = LOOP, *, inlined: str | None = None,
    image: str = "/home/me/libboxes.so", above: tuple[NativeFrame, ...] = (),
) -> SortOrder | None:  # fmt: skip
    library = run / "libboxes.so"
    library.write_bytes(b"")
    lines = []
    if source is not None:
        file = run / "boxes.cpp"
        file.write_text(source, encoding="utf-8")
        os.utime(file, (1000, 1000))
        lines = [SourceLine(function="best", file=str(file), line=4)]
    header = [SourceLine(function=inlined, file="/usr/include/c++/12/bits/stl_algo.h", line=1867)] if inlined else None
    frames = [
        *above,
        NativeFrame(function=inner, image=image, lines=header),
        NativeFrame(function="best(Box*, long)", image=str(library) if source is not None else image, lines=lines),
    ]
    view: Any = SimpleNamespace(native_stack=frames, crash=None)
    return sort_order(view)


def test_comparison_in_the_source_is_named(tmp_path: Path) -> None:
    found = ordered(tmp_path)
    assert found is not None
    assert found.advice.startswith("Write `a.score > b.score` instead of `a.score >= b.score` at boxes.cpp:4: it is")


@pytest.mark.parametrize(
    "source",
    [
        None,
        SOURCE.replace(">=", ">"),
        SOURCE.replace("a.score >=", "a.x0 >="),
        SOURCE.replace("a.score >= b", "less(a"),
    ],
    ids=["no source", "strict", "other members", "a function"],
)
def test_without_it_both_reasons_are_told(source: str | None, tmp_path: Path) -> None:
    found = ordered(tmp_path, source)
    assert found is not None and found.comparison is None
    assert "If it is strict, an element is a bad pointer." in found.advice


def test_inlined_partition_is_found(tmp_path: Path) -> None:
    assert ordered(tmp_path, inner="best(Box*, long)", inlined=PARTITION) is not None


@pytest.mark.parametrize(
    "how",
    [
        {"inner": "std::vector<Box>::push_back(Box const&)"},
        {"inner": "std::__adjust_heap<Box*, long>(Box*, long)"},  # it knows its end
        {"image": "/usr/lib/python3/site-packages/torch/lib/libtorch_cpu.so"},
        {"above": (NativeFrame(function="strcmp", image="/usr/lib/x86_64-linux-gnu/libc.so.6"),)},
        {"inner": None},
    ],
    ids=["no sort", "heap", "torch", "of a bad element", "no name"],
)
def test_other_faults_are_none_of_it(how: dict[str, Any], tmp_path: Path) -> None:
    assert ordered(tmp_path, **how) is None
