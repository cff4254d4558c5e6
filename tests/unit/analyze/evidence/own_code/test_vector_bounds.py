"""A loop of C++ that counts by one container and indexes a shorter one."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.vector_bounds import vector_bounds
from tests.support.native_views import DATA, OTHER, native_view

SOURCE = """\
#include <vector>
typedef std::vector<double> row_t;
static double side(const row_t &p, const std::vector<row_t> &cost)
{
    double total = 0;
    const int n = (int)p.size();
    for (int i = 0; i < n; i++) {
        CHECK
        const row_t &row = cost[INDEX];
        for (int j = 0; j < n; j++)
            total += p[j] * row[j];
    }
    return total;
}
extern "C" double distance(const double *first, int n, const double *dist, int rows, int cols)
{
    row_t p(first, first + n);
    std::vector<row_t> cost;
    cost.reserve(rows);
    for (int r = 0; r < rows; r++)
        cost.emplace_back(dist + r * cols, dist + (r + 1) * cols);
    return side(p, cost);
}
"""
PROGRAM = """\
import ctypes
lib = ctypes.CDLL("libops.so")
def run(q, n, dist):
    lib.distance(q.ctypes.data, n, dist.ctypes.data, *dist.shape)
def main(words, dist):
    for q in words:
        run(q, len(words), dist)
"""
ROWS, N = 38, 47
BEGIN = OTHER + (1 << 20)
STACK = struct.pack("<QQQQ", 7, BEGIN, BEGIN + ROWS * 24, BEGIN + ROWS * 24)


def found(folder: Path, *, n: int | None = N, index: str = "i", check: str = "", rows: int = ROWS,
          outer_line: str = "", inner_line: str = "", step: str = "r++", **how: Any) -> Any:  # fmt: skip
    source = SOURCE.replace("INDEX", index).replace("CHECK", check).replace("r++", step)
    source = source.replace("    return side", f"    {outer_line}\n    return side")
    source = source.replace("double total = 0;", f"double total = 0; {inner_line}")
    arrays = [("q", DATA, "float64", (N,)), ("dist", OTHER, "float64", (rows, rows))]
    return vector_bounds(
        native_view(
            folder, PROGRAM, source, at="lib.distance", way=[("side", "row[j];"), ("distance", "return side")],
            outer="run(q, len", numbers={"n": n} if n is not None else {}, arrays=arrays, suffix="cpp", **how,
        )
    )  # fmt: skip


def test_both_lengths_are_named_with_what_the_line_passes_for_them(tmp_path: Path) -> None:
    told = found(tmp_path)
    assert told.summary == (
        "`i` counts below `n` = 47, and is an index of `cost`, which has 38 elements (`rows`, from `dist` [38, 38])"
    )
    assert told.advice.startswith(
        "Compare the two lengths that line 4 passes, `n` = 47 for `n` and `dist.shape[0]` = 38 for `rows`: make `q` "
        "[47] and `dist` [38, 38] for the same number of items."
    )
    assert told.evidence is None


def test_register_behind_the_container_shows_it_where_one_length_is_not_known(tmp_path: Path) -> None:
    """The bounds of a std::vector lie on the stack."""
    told = found(tmp_path, n=None, memory=[("rsp", 0x7FFE_0000, STACK)], registers={"r9": BEGIN + ROWS * 24})
    assert told.summary.startswith(
        "`i` reached 38, as it counts below `n`, and is an index of `cost`, which has 38 elements"
    )
    assert told.evidence is not None and "r9 points at element 38" in told.evidence.sentence


@pytest.mark.parametrize(
    "how",
    [
        {"n": ROWS},
        {"n": None},
        {"n": None, "memory": [("rsp", 0x7FFE_0000, STACK)], "registers": {"r9": BEGIN + 24}},
        {"index": "i % cost.size()"},
        {"check": "if (i >= (int)cost.size()) break;"},
        {"outer_line": "pad(cost, n);"},
        {"outer_line": "cost = extended(cost, n);"},
        {"outer_line": "auto &all = cost; all.push_back(p);"},
        {"outer_line": "if (p.size() != cost.size()) throw 1;"},
        {"inner_line": "assert(p.size() <= cost.size());"},
        {"step": "r += 2"},
    ],
    ids=[
        "as long",
        "not known",
        "within it",
        "another index",
        "compared",
        "given to another function",
        "set",
        "named so",
        "refused",
        "asserted",
        "fewer rounds",
    ],
)
def test_container_that_may_be_long_enough_is_no_reason(how: dict[str, Any], tmp_path: Path) -> None:
    assert found(tmp_path, **how) is None
