"""Elements that the program's own C++ takes of an empty std::vector."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.empty_container import empty_container
from pytracer.analyze.evidence.own_code.empty_passed import empty_passed
from pytracer.report.job import NativeFrame
from tests.support.native_views import DATA, OTHER, native_view

BUILD = """\
#include <vector>
typedef std::vector<std::vector<float>> rows_t;
class Tree {
public:
    Tree(const rows_t &rows, size_t leaf)
        : rows_(rows), dims_(rows[0].size()), leaf_(leaf) {
        build(0, rows.size());
    }
    const rows_t &rows_;
};
extern "C" int neighbors(const float *pos, int n, int dim, int *out)
{
    rows_t rows(n);
    for (int i = 0; i < n; i++)
        rows[i].assign(pos + i * dim, pos + (i + 1) * dim);
    Tree tree(rows, 10);
    return tree.count(out);
}
"""
SEARCH = """\
import ctypes
lib = ctypes.CDLL("libops.so")
def run(pos, out):
    n, dim = pos.shape
    lib.neighbors(pos.ctypes.data, n, dim, out.ctypes.data)
run(1, 2)
"""
OVERLAP = """\
#include <vector>
using Ring = std::vector<double>;
static double area(const Ring &ring)
{
    double total = 0;
    for (size_t i = 0; i < ring.size(); i++)
        total += ring[i];
    return total;
}
static void join(const Ring &a, const Ring &b, std::vector<Ring> &out)
{
    if (area(a) <= 0 || area(b) <= 0)
        return;
    out.push_back(a);
}
static double overlap(const Ring &a, const Ring &b)
{
    std::vector<Ring> all;
    FILL
    return area(TAKEN); // here
}
extern "C" double score(const double *found, const double *wanted, int n)
{
    double total = 0;
    for (int i = 0; i < n; i++)
        total += overlap(ring_of(found + 5 * i), ring_of(wanted + 5 * i));
    return total / n;
}
"""
SCORE = """\
import ctypes
lib = ctypes.CDLL("libops.so")
def run(found, wanted):
    return lib.score(found.ctypes.data, wanted.ctypes.data, len(found))
run(1, 2)
"""
ROW = (0.5, -0.25, 0.75, -0.125, 1.0)


def built(folder: Path, *, rows: int = 0, source: str = BUILD, base: int = 0) -> Any:
    view = native_view(
        folder, SEARCH, source, at="lib.neighbors", suffix="cpp",
        way=[("Tree::Tree", "dims_("), ("neighbors", "Tree tree(")],
        arrays=[("pos", DATA, "float32", (rows, 3)), ("out", OTHER, "int32", (8,))], numbers={"n": rows, "dim": 3},
    )  # fmt: skip
    view.instruction = SimpleNamespace(base="rdx", base_value=base)
    return empty_container(view)


def scored(folder: Path, *, taken: str = "all.front()", fill: str = "join(a, b, all);", source: str = OVERLAP) -> Any:
    view = native_view(
        folder, SCORE, source.replace("TAKEN", taken).replace("FILL", fill), at="lib.score", suffix="cpp",
        way=[("area", "ring.size()"), ("overlap", "// here"), ("score", "total += overlap")],
        arrays=[("found", DATA, "float64", (6, 5)), ("wanted", OTHER, "float64", (6, 5))],
        memory=[("rbx", DATA + 80, struct.pack("<5d", *ROW))], registers={"rbx": DATA + 80, "rdi": 0},
    )  # fmt: skip
    view.instruction = SimpleNamespace(base="rdi", base_value=0)
    return empty_container(view)


def test_vector_made_of_an_empty_array_is_named_with_that(tmp_path: Path) -> None:
    item = built(tmp_path)
    assert item.summary == "`rows` is empty (`n` = 0, of `pos` [0, 3]), and ops.cpp:6 takes `rows[0]` of it"
    assert item.advice == (
        "Skip `pos` [0, 3] before line 5 passes it, as it has no elements; or let neighbors() return early where `n` "
        "is 0: ops.cpp:6 takes `rows[0]` without asking."
    )


def test_vector_that_was_made_with_elements_is_not_told_as_empty(tmp_path: Path) -> None:
    assert built(tmp_path, rows=7) is None


def test_null_pointer_of_something_else_is_not_told(tmp_path: Path) -> None:
    assert built(tmp_path, base=0x7000) is None
    assert built(tmp_path, source=BUILD.replace("dims_(rows[0].size())", "dims_(rows[0].size() + cfg->dims)")) is None
    pointer = BUILD.replace("const rows_t &rows, size_t", "const float **rows, size_t")
    assert built(tmp_path, source=pointer) is None


def test_reference_to_the_first_element_of_nothing_is_told_with_what_did_not_fill_it(tmp_path: Path) -> None:
    item = scored(tmp_path)
    assert item.summary == "`all` is empty, and ops.cpp:20 takes `all.front()` of it"
    assert item.advice == (
        "Ask `all.empty()` in overlap() before ops.cpp:20 takes `all.front()`. `join(a, b, all)` at ops.cpp:19 alone "
        "could add to it, and adds nothing where `area(a) <= 0 || area(b) <= 0` (ops.cpp:12). Then "
        "check the values that line 4 passes, which lead to that: `found[2]` is (0.5, -0.25, 0.75, -0.125, 1), "
        "where rbx points."
    )


@pytest.mark.parametrize("taken", ["all[0]", "all.back()", "all[all.size() - 1]"])
def test_other_ways_to_take_an_element_are_found(taken: str, tmp_path: Path) -> None:
    item = scored(tmp_path, taken=taken)
    assert item is not None and item.taken == taken


def test_lines_that_would_have_added_are_named(tmp_path: Path) -> None:
    item = scored(tmp_path, fill="if (a.size() > 2) all.push_back(a);")
    assert "Only ops.cpp:19 would have added to it." in item.advice


@pytest.mark.parametrize("taken", ["*best", "find(all)", "a", "boxes->front()"])
def test_references_to_what_may_be_null_for_another_reason_are_not_told(taken: str, tmp_path: Path) -> None:
    assert scored(tmp_path, taken=taken) is None


def test_test_around_what_adds_is_named_as_well(tmp_path: Path) -> None:
    """Either may have been why; which was is not known."""
    source = OVERLAP.replace("    out.push_back(a);", "    if (a.size() > 2)\n        out.push_back(a);")
    item = scored(tmp_path, source=source)
    assert (
        "adds nothing where `area(a) <= 0 || area(b) <= 0` (ops.cpp:12) or where `!(a.size() > 2)` (ops.cpp:14)."
        in item.advice
    )


@pytest.mark.parametrize(("rows", "words"), [(0, "`pos` [0, 3] has"), (7, None)])
def test_arrays_without_elements_are_named_where_the_source_is_not_known(
    rows: int, words: str | None, tmp_path: Path
) -> None:
    view = native_view(
        tmp_path, SEARCH, "", at="lib.neighbors", way=[], numbers={"n": rows, "dim": 3},
        arrays=[("pos", DATA, "float32", (rows, 3)), ("out", OTHER, "int32", (8,))],
    )  # fmt: skip
    view.native_stack.insert(0, NativeFrame(function="neighbors", image=str(tmp_path / "lib" / "libops.so")))
    assert empty_passed(view) == words


TAKES = """\
#include <vector>
struct Box { float *data; };
GLOBAL
class Model {
public:
    float score(int i);
    std::vector<float> weights_;
};
float Model::score(int i)
{
    return weights_.back(); // member
}
extern "C" float taken(Model *m, int n, float *out)
{
    std::vector<int> order;
    std::vector<float> kept;
    for (int i = 0; i < n; i++)
        keep(order, i);
    BEFORE
        TAKEN // here
    return m->score(n);
}
"""


def taken_of(
    folder: Path, taken: str, *, before: str = "", made: str = "", way: Any = None, source: str = TAKES
) -> Any:
    text = source.replace("TAKEN", taken).replace("BEFORE", before).replace("GLOBAL", made)
    program = (
        "import ctypes\nlib = ctypes.CDLL('libops.so')\ndef run(m, n, out):\n    lib.taken(m, n, out)\nrun(1, 2, 3)\n"
    )
    view = native_view(folder, program, text, at="lib.taken", suffix="cpp", way=way or [("taken", "// here")])
    view.instruction = SimpleNamespace(base="rdi", base_value=0)
    return empty_container(view)


def test_variable_of_the_function_or_of_the_file_is_told(tmp_path: Path) -> None:
    assert taken_of(tmp_path, "n = order[0];") is not None
    assert taken_of(tmp_path, "n = all[0];", made="std::vector<int> all;") is not None


@pytest.mark.parametrize(
    ("taken", "before"),
    [
        ("kept[order[n]] = 1;", ""),  # either
        ("n = boxes[n].data[2];", ""),  # its elements have pointers
        ("n = order[0];", "if (!order.empty())"),
        ("n += order[i];", "for (size_t i = 0; i < order.size(); i++)"),
    ],
)
def test_other_pointers_and_containers_with_elements_are_not_told(taken: str, before: str, tmp_path: Path) -> None:
    assert taken_of(tmp_path, taken, before=before, made="std::vector<Box> boxes;") is None


def test_member_of_an_object_that_may_be_null_is_not_told(tmp_path: Path) -> None:
    way = [("Model::score", "// member"), ("taken", "return m->score")]
    assert taken_of(tmp_path, "", way=way) is None


@pytest.mark.parametrize(("where", "known"), [("    ", False), ("", True)], ids=["a member", "a variable of the file"])
def test_member_of_an_object_that_may_be_null_itself_is_not_told(where: str, known: bool, tmp_path: Path) -> None:
    """The fault at a small offset from null is then that of the member in the object."""
    source = OVERLAP.replace("    std::vector<Ring> all;\n", "")
    source = source.replace(
        "static double area", f"struct Keep {{\n{where}std::vector<Ring> all;\n}};\nstatic double area", 1
    )
    assert (scored(tmp_path, source=source) is not None) == known
