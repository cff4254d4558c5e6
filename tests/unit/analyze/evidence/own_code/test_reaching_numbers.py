"""Which numbers of a call can have led the failing line of C astray, and which only bound another loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.evidence.own_code.reaching_numbers import without_part
from tests.support.native_views import native_view

SOURCE = """\
void topn(const int *ids, const float *table, int n, int most, int first, float *out)
{
    for (int i = first; i < n; i++) {
        const int k = ids[i];
        out[i] += table[k];
    }
    for (int m = 0; m < most; m++)
        out[m] *= 2;
}
"""
PROGRAM = """\
def run(lib, ids, table, n, most, first, out):
    lib.topn(ids.ctypes.data, table.ctypes.data, n, most, first, out.ctypes.data)
run(1, 2, 3, 4, 5, 6, 7)
"""


@pytest.mark.parametrize(
    ("old", "new", "left_out"),
    [
        ("", "", {"most"}),
        ("ids[i];", "ids[i] % most;", set()),
        ("int i = first", "int i = 0", {"most", "first"}),
        ("ids[i];", "ids[i];\n        if (k == most) continue;", set()),
        ("    for (int i", "    step(&n, most);\n    for (int i", set()),
        ("    for (int i", "    ids = ids + most;\n    for (int i", set()),
        ("    for (int i", "    locate(n, most);\n    for (int i", set()),  # of C++, by a reference
        ("    for (int i", "    view_t ids;\n    ids.rows = most;\n    for (int i", set()),
        ("    for (int i", "    auto of = [&](int i) { return i + most; };\n    for (int i", set()),
        ("void topn", "#define OF(i) ((i) * most)\nvoid topn", {"most"}),
        ("const int k = ids[i];", "const int k = ids[i];\n        if (left-- < most) break;", set()),
        ("for (int i = first; i < n; i++) {", "int i = first;\n    while (run < most) {", {"n"}),
        ("    for (int i = first; i < n; i++) {", "    int i = first, left = most;\n    while (--left) {", {"n"}),
        ("    for (int i", "    int *kept = ids;\n    kept[0] = most;\n    for (int i", set()),  # of another name
    ],
)
def test_numbers_without_a_part_are_left_out(old: str, new: str, left_out: set[str], tmp_path: Path) -> None:
    source = SOURCE.replace(old, new) if old else SOURCE
    view = native_view(tmp_path, PROGRAM, source, at="lib.topn", way=[("topn", "table[k]")])
    assert without_part(view) & {"n", "most", "first"} == left_out


def test_call_that_does_not_fit_the_source_leaves_nothing_out(tmp_path: Path) -> None:
    program = PROGRAM.replace(", out.ctypes.data", "")
    view = native_view(tmp_path, program, SOURCE, at="lib.topn", way=[("topn", "table[k]")])
    assert not without_part(view)
