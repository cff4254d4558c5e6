"""Lengths that no container can have, of the program's own C++: what they are computed from, by the source."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import absurd_length as module
from pytracer.analyze.evidence.own_code.absurd_length import absurd_length
from pytracer.decode.types.snapshot import Argument, HeldArray, PythonFrame
from pytracer.report.job import NativeFrame, SourceLine

SOURCE = """#include <vector>
static std::vector<int64_t> row(const Graph &g, int64_t node, int64_t n)
{
    {before}
    {line}
    return nbrs;
}
extern "C" int64_t sample(void *handle, const int64_t *seeds, int64_t n_seeds)
{
    Graph &g = *static_cast<Graph *>(handle);
    for (int64_t i = 0; i < n_seeds; i++) {
        {chosen}
        {call}
    }
    return 0;
}
"""
PROGRAM = """def sample(lib, graph, seeds):
    return lib.sample(graph, seeds.ctypes.data, len(seeds))


sample(1, 2, 3)
"""
BEFORE, LINE = "int64_t begin = g.indptr[node], end = g.indptr[node + 1];", "std::vector<int64_t> nbrs(end - begin);"
CALL, DATA = "auto nbrs = row(g, seeds[i], n_seeds);", 0x7F00_0010_0000


def view_of(
    folder: Path, *, before: str = BEFORE, line: str = LINE, call: str = CALL, chosen: str = "", values: bool = True
) -> Any:
    """A process that died in `line`. `values`: whether the tensor is recorded whose memory `seeds` is."""
    file, library, program = folder / "sampler.cpp", folder / "sampler.so", folder / "train.py"
    text = SOURCE
    for name, words in (("before", before), ("line", line), ("call", call), ("chosen", chosen)):
        text = text.replace(f"{{{name}}}", words)
    file.write_text(text, encoding="utf-8")
    library.write_bytes(b"")
    program.write_text(PROGRAM, encoding="utf-8")
    os.utime(file, (1000, 1000))
    inner = PythonFrame("sample", str(program), 2)
    stack = (inner, PythonFrame("<module>", str(program), 5))
    tensor = Argument(1, DATA, 256, 0, (256,), 1, "int64", "cpu", 27034, 27289, None, None, None, "held", strides=(1,))
    crash = SimpleNamespace(
        arrays=(HeldArray("seeds", DATA, "int64", (256,), (8,), inner, 0),), numbers=(), holders=(),
        arguments=(tensor,) if values else (), python_stack=stack, python_threads=(), native_stack=(), registers={},
        threads=(), images=(SimpleNamespace(path=str(library), start=1, end=2),),
    )  # fmt: skip
    snapshot = SimpleNamespace(pid=1, threads=(), argv=(), created_wall_ns=time.time_ns() + 10**9, version=(1, 9))
    lines = [
        SourceLine("std::vector<long>::vector", "/usr/include/c++/12/bits/stl_vector.h", 552),
        SourceLine("row", str(file), 5),
        SourceLine("sample", str(file), 13),
    ]
    return SimpleNamespace(
        native_stack=[NativeFrame(function="sample", image=str(library), lines=lines)], crash=crash,
        process=SimpleNamespace(snapshot=snapshot), python_stack=None, region_python=(), region_opener=None,
        space=SimpleNamespace(live_around=lambda addr: None),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def thrown(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    exception = SimpleNamespace(type="std::length_error", what="cannot create std::vector larger than max_size()")
    monkeypatch.setattr(module, "cpp_exception", lambda view: exception)
    monkeypatch.setattr(module, "is_of_own_image", lambda frame: True)
    return exception


def test_length_is_followed_to_the_row_pointers_and_the_ids_that_choose_them(tmp_path: Path) -> None:
    found = absurd_length(view_of(tmp_path))
    assert found is not None
    assert found.summary == "`end - begin` (sampler.cpp:5) is no length, below 0 or far too large"
    assert found.advice == (
        "sampler.cpp:5 makes room for `end - begin` elements, which is below 0 or far too large. It is "
        "`g.indptr[node + 1] - g.indptr[node]`: usually `node` is beyond what `g.indptr` has, or the numbers in that "
        "do not go up. `node` is a number of `seeds` (from 27034 to 27289), which line 2 passes: compare these "
        "with the number of rows, and let row() refuse other numbers before it reads `g.indptr`."
    )


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"line": "auto nbrs = std::vector<int64_t>(end - begin, 0);"}, "`seeds` (from 27034 to 27289)"),
        ({"line": "nbrs.resize(end - begin);"}, "`seeds` (from 27034 to 27289)"),
        ({"line": "int64_t *nbrs = new int64_t[end - begin];"}, "`seeds` (from 27034 to 27289)"),
        ({"before": "", "line": "nbrs.reserve(g.indptr[node + 1] - g.indptr[node]);"}, "`seeds` (from 27034 to 27289)"),
        ({"before": BEFORE + " size_t n = end - begin;", "line": "nbrs.resize(n);"}, "`seeds` (from 27034 to 27289)"),
        ({"chosen": "int64_t v = seeds[i];", "call": "auto nbrs = row(g, v, 2);"}, "`seeds` (from 27034 to 27289)"),
        ({"values": False}, "`node` is a number of `seeds`, which line 2 passes"),
        ({"call": "auto nbrs = row(g, next(g), 2);"}, "Compare what line 2 passes with the number of its rows"),
        ({"before": "int64_t end = g.ends[node], begin = g.begins[node];"}, "look for what these are"),
        ({"line": "std::vector<float> nbrs(n - 9);"}, "`n - 9` elements, which is below 0 or far too large: look for"),
    ],
)
def test_other_ways_to_write_it_and_less_that_is_known(how: dict[str, Any], words: str, tmp_path: Path) -> None:
    found = absurd_length(view_of(tmp_path, **how))
    assert found is not None and words in found.advice


@pytest.mark.parametrize(
    "line",
    [
        "nbrs.push_back(end - begin);",
        "std::vector<int64_t> nbrs(g.indices.begin(), g.indices.end());",
        "std::vector<int64_t> nbrs(16);",
        "std::vector<int64_t> nbrs(end - begin), seen(n);",
        "nbrs = copy_of(g, node);",
    ],
)
def test_line_that_asks_for_another_length_is_none(line: str, tmp_path: Path) -> None:
    assert absurd_length(view_of(tmp_path, line=line)) is None


def test_other_exceptions_have_their_own_words(tmp_path: Path, thrown: SimpleNamespace) -> None:
    thrown.type = "std::out_of_range"
    assert absurd_length(view_of(tmp_path)) is None


def test_part_that_is_below_0_by_what_the_line_passes_is_named_with_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "is_own_frame", lambda frame: True)
    short = "int64_t rows = n_seeds - 300 + 1; nbrs.resize(rows * g.width);"
    view = view_of(tmp_path, call=short)
    lines = view.native_stack[0].lines
    view.native_stack[0] = NativeFrame(function="sample", image=view.native_stack[0].image, lines=[lines[0], lines[2]])
    found = absurd_length(view)
    assert found is not None and found.summary == "`rows * g.width` (sampler.cpp:13) is no length: `rows` is -43"
    assert found.advice == (
        "sampler.cpp:13 makes room for `rows * g.width` elements. That is below 0 by `n_seeds - 300 + 1` = -43, "
        "`rows`, for `len(seeds)` = 256 of line 2: leave out or change what is too small before that line, and let "
        "sample() refuse it."
    )


def test_part_of_a_sum_that_is_below_0_does_not_make_the_sum_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "is_own_frame", lambda frame: True)
    view = view_of(tmp_path, call="int64_t off = n_seeds - 300 + 1; nbrs.resize(g.rows + off);")
    lines = view.native_stack[0].lines
    view.native_stack[0] = NativeFrame(function="sample", image=view.native_stack[0].image, lines=[lines[0], lines[2]])
    found = absurd_length(view)
    assert found is None or found.negative is None
