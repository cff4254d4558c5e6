"""Recursion of the program's own C along an array that leads back to where it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.circles import circle
from pytracer.report.job import NativeFrame, StackCycle
from tests.support.native_views import DATA, native_view

SOURCE = """\
int depth_of(const int *parent, int node)
{
    if (parent[node] < 0) return 0;
    SET
    return 1 + CALL;
}
int deepest(const int *parent, int n)
{
    int best = 0;
    for (int i = 0; i < n; i++)
        best = max(best, depth_of(parent, i));
    return best;
}
"""
PROGRAM = """\
import ctypes
lib = ctypes.CDLL("libops.so")
def depth(heads):
    parent = np.array(heads, dtype=np.int32) - 1
    return lib.deepest(parent.ctypes.data, len(parent))
def main(sentences):
    depth(sentences[0])
"""


def found(
    folder: Path, call: str, *, repeats: int = 9000, before: str = "", name: str = "depth_of", more: str = ""
) -> Any:
    source = SOURCE.replace("CALL", call).replace("SET", before).replace("int node)", f"int node{more})")
    view = native_view(
        folder, PROGRAM, source, at="lib.deepest",
        way=[("depth_of", "return 1 +"), ("depth_of", "return 1 +"), ("deepest", "best = max")], outer="depth(sent",
        arrays=[("parent", DATA, "int32", (4,))],
    )  # fmt: skip
    return circle(view, StackCycle(frames=[NativeFrame(function=name)], repeats=repeats))


@pytest.mark.parametrize(
    ("call", "before"),
    [("depth_of(parent, parent[node])", ""), ("depth_of(parent, up)", "int up = parent[node];")],
)
def test_recursion_that_is_deeper_than_its_array_is_long_meets_elements_again(
    call: str, before: str, tmp_path: Path
) -> None:
    told = found(tmp_path, call, before=before)
    assert told is not None
    assert told.clause == "; it goes on at `parent[node]`, and `parent` has 4 elements: it meets some again"
    assert told.advice.startswith("Look for a circle in `parent`, of line 4 (`parent = np.array(heads, dtype=np.int32)")
    assert "Let depth_of() give up after 4 steps." in told.advice


@pytest.mark.parametrize(
    "how",
    [
        {"repeats": 3},  # as deep as it may be
        {"call": "depth_of(parent, node + 1)"},  # it leaves the array
        {"call": "depth_of(parent + 1, parent[node])"},
        {"call": "depth_of(parent, parent[node], left - 1)", "more": ", int left"},  # so many steps are asked for
        {"name": "walk"},
    ],
)
def test_recursion_that_may_be_another_is_no_circle(how: dict[str, Any], tmp_path: Path) -> None:
    assert found(tmp_path, **{"call": "depth_of(parent, parent[node])", **how}) is None
