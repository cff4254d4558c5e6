"""Indices that C read from arrays which are not recorded: whose numbers are taken as indices of what, unchecked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.unchecked_lookups import unchecked_lookup
from tests.support.native_views import native_view

SOURCE = """\
void dot(int n, int most, const int *Ap, const int *Aj, const int *Bp, const int *Bj, int *best)
{
    for (int i = 0; i < n; i++) {
        for (int jj = Ap[i]; jj < Ap[i + 1]; jj++) {
            const int j = Aj[jj];
            for (int kk = Bp[j]; kk < Bp[j + 1]; kk++) {
                const int k = Bj[kk];
                best[i] = k;
            }
        }
    }
}
"""
PROGRAM = """\
import ctypes
from collections import namedtuple

Csr = namedtuple("Csr", "indptr indices data shape")

def tfidf(texts):
    return Csr(1, 2, 3, (4, 5))

def run(lib, a, b, best, most):
    {call}

def main(lib, held, names, best):
    run(lib, tfidf(held), tfidf(names), best, 5)

main(1, 2, 3, 4)
"""
POINTER = "address = lambda array: ctypes.c_void_p(array.ctypes.data)\n    "
BY_SLICES = POINTER + "lib.dot(9, most, *map(address, (*a[:2], *b[:2])), address(best))"
BY_NAMES = ", ".join(f"{name}.ctypes.data" for name in ("a.indptr", "a.indices", "b.indptr", "b.indices", "best"))
BY_NAMES = f"lib.dot(9, most, {BY_NAMES})"


def found(folder: Path, source: str = SOURCE, running: str = "k = Bj[kk]", call: str = BY_SLICES, **more: Any) -> Any:
    program = PROGRAM.replace("{call}", call)
    return unchecked_lookup(
        native_view(folder, program, source, at="lib.dot", outer="tfidf(held)", way=[("dot", running)], **more)
    )


@pytest.mark.parametrize("call", [BY_SLICES, BY_NAMES])
def test_numbers_of_one_object_that_index_another_one_are_named(call: str, tmp_path: Path) -> None:
    told = found(tmp_path, call=call)
    assert told.summary == (
        "comes by way of `Bp[Aj[jj]]`, where nothing checks that the elements of `a.indices` are indices of `b.indptr`"
    )
    assert told.advice.startswith(f"Check max() of `a.indices` (`Aj`), which line {10 + call.count(chr(10))} passes")
    assert "against the length of `b.indptr` (`Bp`)" in told.advice
    assert "They are of two objects, `a` and `b`, made at line" in told.advice
    assert "If all fit, check those in `b.indptr` against the length of `b.indices`." in told.advice


def test_only_step_is_named_without_objects(tmp_path: Path) -> None:
    source = "void take(const float *table, const int *ids, float *out, int n)\n{\n    for (int i = 0; i < n; i++)\n"
    source += "        out[i] = table[ids[i]];\n}\n"
    program = "def run(lib, rows, chosen, out):\n    lib.take(rows.data_ptr(), chosen.data_ptr(), out.data_ptr(), 3)\n"
    view = native_view(tmp_path, f"{program}run(1, 2, 3, 4)\n", source, at="lib.take", way=[("take", "table[")])
    told = unchecked_lookup(view)
    assert told is not None
    assert told.summary.startswith(
        "comes by way of `table[ids[i]]`, where nothing checks that the elements of `chosen`"
    )
    assert "two objects" not in told.advice


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("const int j = Aj[jj];", "const int j = Aj[jj];\n            if (j >= most) continue;"),
        ("const int j = Aj[jj];", "const int j = clamp(Aj[jj], 0, most);"),
        ("const int j = Aj[jj];", "const int j = Aj[jj];\n            assert(j < most);"),
        ("const int k = Bj[kk];", "const int k = Bj[kk] + g->row[i];"),  # of what is not seen
    ],
)
def test_checked_and_unseen_numbers_are_not_blamed(old: str, new: str, tmp_path: Path) -> None:
    assert found(tmp_path, SOURCE.replace(old, new)) is None


TAKE = "void take(const float *table, const int *ids, float *out, int n, int rows)\n{\n    EARLIER\n"
TAKE += "    for (int i = 0; i < n; i++)\n        out[i] = table[ids[i]];\n}\n"
RUN = "def run(lib, rows, ids, out):\n    EARLIER\n"
RUN += "    lib.take(rows.data_ptr(), ids.data_ptr(), out.data_ptr(), 3, 9)\nrun(1, 2, 3, 4)\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("EARLIER", "for (int i = 0; i < n; i++) { if (ids[i] >= rows) return; }"),
        ("EARLIER", "if (!all_below(ids, n, rows)) return;"),
        ("EARLIER", "validate(ids, n, rows);"),
        ("EARLIER", "for (int i = 0; i < n; i++) ids[i] = hash(i);"),
        ("EARLIER", "table = cached(rows);"),
        ("i < n;", "i < n && ids[i] < rows;"),
        ("table[ids[i]]", "ids[i] < rows ? table[ids[i]] : 0"),
        ("table[ids[i]]", "table[ids[i] % rows]"),
        ("table[ids[i]]", "table[ids[i] & 1023]"),
    ],
)
def test_elements_that_the_source_asks_for_or_cuts_are_not_called_unchecked(old: str, new: str, tmp_path: Path) -> None:
    source, program = TAKE.replace(old, new).replace("EARLIER", ";"), RUN.replace("EARLIER", "pass")
    assert unchecked_lookup(native_view(tmp_path, program, source, at="lib.take", way=[("take", "table[")])) is None


@pytest.mark.parametrize(
    ("earlier", "told"),
    [
        ("assert ids.max() < len(rows)", False),
        ("if ids.max() >= len(rows): raise IndexError(ids)", False),
        ("ids = ids.clamp(0, len(rows) - 1)", False),
        ("ids = torch.randint(0, len(rows), (3,))", False),
        ("ids = hashed(out) % len(rows)", False),
        ("ids = ids.contiguous()", True),
        ("assert out.shape == (3,)", True),
    ],
)
def test_numbers_that_python_asks_for_are_not_called_unchecked(earlier: str, told: bool, tmp_path: Path) -> None:
    source, program = TAKE.replace("EARLIER", "if (!ids) return;"), RUN.replace("EARLIER", earlier)
    found = unchecked_lookup(native_view(tmp_path, program, source, at="lib.take", way=[("take", "table[")]))
    assert (found is not None) == told


def test_arrays_of_one_object_alone_leave_open_which_step_was_wrong(tmp_path: Path) -> None:
    assert found(tmp_path, call=BY_NAMES.replace("a.", "b.").replace("b.indptr.ctypes", "b.rows.ctypes", 1)) is None


def test_line_without_a_number_that_was_read_is_none(tmp_path: Path) -> None:
    source = SOURCE.replace("const int k = Bj[kk];", "const int k = Bj[i];")
    assert found(tmp_path, source, "k = Bj[i]") is None


def test_numbers_that_are_recorded_and_fit_are_not_blamed(tmp_path: Path) -> None:
    source = "void take(const float *table, const int *ids, float *out, int n)\n{\n    for (int i = 0; i < n; i++)\n"
    source += "        out[i] = table[ids[i]];\n}\n"
    program = "def run(lib, rows, ids, out):\n    lib.take(rows.ctypes.data, ids.ctypes.data, out.ctypes.data, 3)\n"
    arrays = [("rows", 0x7F00_0000_0000, "float32", (50,)), ("ids", 0x7F01_0000_0000, "int32", (3,))]
    view = native_view(
        tmp_path, f"{program}run(1, 2, 3, 4)\n", source, at="lib.take", way=[("take", "table[")], arrays=arrays
    )
    assert unchecked_lookup(view) is not None  # what they hold was not read
    view.crash.arrays = tuple(
        item.__class__(**{**{name: getattr(item, name) for name in item.__struct_fields__}, "minimum": 0, "maximum": 9})
        for item in view.crash.arrays
    )
    assert unchecked_lookup(view) is None
