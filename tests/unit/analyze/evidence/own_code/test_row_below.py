"""Rows before the first one, which a loop of the program's own C comes to: by the source."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import row_below as module
from pytracer.analyze.evidence.own_code.row_below import row_before_storage, row_below
from pytracer.decode.types.snapshot import Argument, HeldArray, Holder, PythonFrame
from pytracer.report.job import NativeFrame, SourceLine

SOURCE = """#include <stdint.h>
static void trace(int *path, float *value, int t_y, int t_x, int width, const int *ids)
{
    {begin}
    {head}
        {before}
        {line}
            k--;
    }
}
void align(int *paths, float *values, const int *t_ys, const int *t_xs, int batch, int width)
{
    for (int b = 0; b < batch; b++)
        trace(paths + b * width, values + b * width, t_ys[b], {longer}, width, paths);
}
"""
PROGRAM = """import numpy as np
def search(lib, paths, values, text_len, mel_len):
    xs = text_len.numpy().astype(np.int32)
    ys = mel_len.numpy().astype(np.int32)
    {change}
    lib.align(paths.ctypes.data, values.ctypes.data, ys.ctypes.data, xs.ctypes.data, len(ys), 50)


search(1, 2, 3, 4, 5)
"""
BEGIN, HEAD = "int y, k = t_x - 1;", "for (y = t_y - 1; y >= 0; y--) {"
LINE = "if (k != 0 && (k == y || value[(y - 1) * width + k] < value[(y - 1) * width + k - 1]))"
SINGLE = "k += value[y - 1];"
DATA = 0x7F00_0010_0010


def view_of(
    folder: Path,
    *,
    begin: str = BEGIN,
    head: str = HEAD,
    before: str = "",
    line: str = LINE,
    longer: str = "t_xs[b]",
    change: str = "pass",
    highest: tuple[int, int] | None = None,
) -> Any:
    """A process that died in `line`. `highest`: of the tensors `text_len` and `mel_len`."""
    file, library, program = folder / "align.c", folder / "libalign.so", folder / "train.py"
    text = SOURCE
    for name, words in (("begin", begin), ("head", head), ("before", before), ("line", line), ("longer", longer)):
        text = text.replace(f"{{{name}}}", words)
    file.write_text(text, encoding="utf-8")
    library.write_bytes(b"")
    program.write_text(PROGRAM.replace("{change}", change), encoding="utf-8")
    os.utime(file, (1000, 1000))
    inner = PythonFrame("search", str(program), 6)
    stack = (inner, PythonFrame("<module>", str(program), 9))
    arrays = [
        HeldArray(name, DATA + at * 4096, dtype, (8,), (4,), inner, 0)
        for at, (name, dtype) in enumerate(
            (("paths", "int32"), ("values", "float32"), ("ys", "int32"), ("xs", "int32"))
        )
    ]
    holders: list[Holder] = []
    arguments: list[Argument] = []
    for at, (name, high) in enumerate(zip(("text_len", "mel_len"), highest or (), strict=False)):
        impl, base = 0x5000 + at, DATA + (8 + at) * 4096
        holders.append(Holder("local", name, base, inner, own=True, elements=8))
        arguments.append(
            Argument(impl, base, 8, 0, (8,), 1, "int64", "cpu", 3, high, None, None, None, "held", strides=(1,))
        )
    crash = SimpleNamespace(
        arrays=tuple(arrays), numbers=(), holders=tuple(holders), arguments=tuple(arguments), python_stack=stack,
        python_threads=(), native_stack=(), registers={}, memory=(), handled=None, mappings=(), values=(), threads=(),
        images=(SimpleNamespace(path=str(library), start=1, end=2),),
    )  # fmt: skip
    snapshot = SimpleNamespace(
        pid=1, threads=(), argv=(), created_wall_ns=time.time_ns() + 10**9, version=(1, 9), crash=crash
    )
    lines = [SourceLine("trace", str(file), 7), SourceLine("align", str(file), 14)]
    return SimpleNamespace(
        native_stack=[NativeFrame(function="align", image=str(library), lines=lines)], crash=crash,
        process=SimpleNamespace(snapshot=snapshot), python_stack=None, region_python=(), region_opener=None,
        arguments=tuple(arguments),
        space=SimpleNamespace(live_around=lambda addr: None), instruction=SimpleNamespace(base="rdi", base_value=DATA),
        place=SimpleNamespace(kind="before-storage", found="exact", storage=SimpleNamespace(base=DATA)),
    )  # fmt: skip


def test_row_that_the_loop_comes_to_and_the_lengths_that_lead_there(tmp_path: Path) -> None:
    view = view_of(tmp_path)
    found = row_below(view, -40)
    assert found is not None
    assert found.advice(view) == (
        "align.c:7 takes `value[(y - 1) * width + k]`, and the loop of its line 5 comes to `y` = 0, where `y - 1` is "
        "row -1: ask for `y` first. `k` begins with `t_x - 1` and goes down at most once in each of the `t_y` rounds: "
        "it is still above 0 there where `t_x` is more than `t_y`. Line 6 passes these in `xs` and `ys`: look for "
        "items with more in `xs` than in `ys`, and leave them out, or cut both alike."
    )


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"head": "for (y = t_y - 1; y > -1; --y) {"}, "in each of the `t_y` rounds"),
        ({"head": "for (unsigned y = t_y; y-- > 0;) {"}, "in each of the `t_y` rounds"),
        ({"begin": "int y = t_y, k = t_x - 1;", "head": "while (y--) {"}, "`y - 1` is row -1"),
        ({"head": "for (int64_t y = 0; y < t_y; ++y) {"}, "`y - 1` is row -1"),
        ({"line": "if (value[(long)(y - 2) * width + k] > 0)"}, "`y - 2` is row -2"),
        ({"line": "if (rows[y - 1][k] > 0)"}, "`y - 1` is row -1"),
        ({"line": "if (value[k + width * (y - 1)] > 0)"}, "`y - 1` is row -1"),
        ({"before": "path[y * width + k] = 1;"}, "`y - 1` is row -1"),
    ],
)
def test_other_ways_to_write_it_are_found(how: dict[str, Any], words: str, tmp_path: Path) -> None:
    view = view_of(tmp_path, **how)
    found = row_below(view, None)
    assert found is not None and words in found.advice(view)


@pytest.mark.parametrize(("index", "expected"), [(-1, True), (2**32 - 1, True), (-40, False), (None, True)])
def test_single_element_before_the_first_one_is_one_away(index: int | None, expected: bool, tmp_path: Path) -> None:
    found = row_below(view_of(tmp_path, line=SINGLE), index)
    assert (found is not None and "`y - 1` is index -1" in found.advice(view_of(tmp_path, line=SINGLE))) is expected


@pytest.mark.parametrize(
    "how",
    [
        {"before": "if (y == 0) break;"},
        {"before": "if (!y) continue;"},
        {"line": "if (y > 0 && value[(y - 1) * width + k] > 0)"},
        {"line": "if (y && value[(y - 1) * width + k] > 0)"},
        {"line": "v = k == y ? 0 : value[(y - 1) * width + k];"},
        {"line": "if (value[MAX(y - 1, 0) * width + k] > 0)"},
        {"line": "if (value[((y - 1 + t_y) % t_y) * width + k] > 0)"},
        {"line": "if (value[(y - 1 + t_y) * width + k] > 0)"},
        {"line": "if (value[y * width + k] > 0)"},
        {"line": "if (value[(k - 1) * width + y] > 0)"},  # `k` is no counter of the loop
        {"line": "if (value[(y - 1) * width + k] > value[ids[k]])"},  # read from memory
        {"head": "for (y = t_y - 1; y >= 1; y--) {"},
        {"head": "for (y = t_y - 1; y > 0; y--) {"},
        {"head": "for (int y = 1; y < t_y; y++) {"},
        {"head": "for (int y = t_x; y < t_y; y++) {"},
        {"head": "for (y = t_y - 1; y >= 0 && k > y; y--) {"},
    ],
)
def test_line_that_never_takes_it_or_may_mean_another_one_is_none(how: dict[str, Any], tmp_path: Path) -> None:
    assert row_below(view_of(tmp_path, **how), None) is None


@pytest.mark.parametrize(
    "how",
    [
        {"begin": "int y, k = t_x / 2;"},
        {"begin": "int y, k = t_x - 1; k = width - 1;"},
        {"head": "for (y = t_y - 2; y >= 0; y--) {"},
        {"head": "for (y = t_y - 1; y >= 0; y -= 2) {"},
        {"before": "while (k > 9 && ids[k]) k -= 3;"},
        {"before": "k--;"},
        {"begin": "int y, k = t_y - 1;"},
    ],
)
def test_index_that_may_be_0_there_is_not_counted(how: dict[str, Any], tmp_path: Path) -> None:
    found = row_below(view_of(tmp_path, **how), None)
    assert found is not None and found.lengths is None


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"highest": (450, 375)}, True),
        ({"highest": (375, 450)}, False),
        ({"highest": (450, 375), "change": "xs[xs > 100] = 100"}, False),
    ],
    ids=["more", "fewer", "changed since"],
)
def test_largest_numbers_prove_that_an_item_has_more(how: dict[str, Any], expected: bool, tmp_path: Path) -> None:
    """Those of the tensors that the arrays are copies of."""
    view = view_of(tmp_path, **how)
    found = row_below(view, None)
    assert found is not None
    proven = "`xs` goes to 450 and `ys` to 375 at most, so that some item has more in `xs`"
    assert (proven in found.advice(view)) is expected


def test_numbers_of_other_items_are_not_compared(tmp_path: Path) -> None:
    view = view_of(tmp_path, longer="t_xs[b + 1]")
    found = row_below(view, None)
    assert found is not None and "Look for such an item in what line 6 passes" in found.advice(view)


@pytest.mark.parametrize("kind", ["past-storage", "live-storage"])
def test_access_that_was_not_before_a_storage_is_none(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_operator", lambda view: None)
    view = view_of(tmp_path)
    assert row_before_storage(view, -40) is not None
    view.place.kind = kind
    assert row_before_storage(view, -40) is None
