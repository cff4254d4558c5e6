"""Variables of C that are smaller than what PyArg_ParseTuple() stores into them, by the format and the declaration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.null_sources import null_source
from pytracer.analyze.evidence.own_code.parsed_arguments import parsed_argument
from pytracer.analyze.evidence.wild.parsed_argument import overwritten_by_parse
from tests.support.native_views import native_view

SOURCE = """\
#include <Python.h>
static PyObject *standardize(PyObject *self, PyObject *args)
{
    PyArrayObject *windows;
    bool clip;
    if (!PyArg_ParseTuple(args, "O!p", &PyArray_Type, &windows, &clip))
        return NULL;
    npy_intp count = PyArray_DIM(windows, 0);
    return scaled(count, clip);
}
"""
PROGRAM = "import windowing\ndef run(ext, block):\n    return ext.standardize(block, True)\nrun(windowing, 1)\n"


def found(folder: Path, source: str = SOURCE, running: str = "PyArray_DIM") -> Any:
    view = native_view(folder, PROGRAM, source, at="ext.standardize", way=[("standardize", running)], addr=0)
    return view, parsed_argument(view)


def test_variable_that_is_smaller_than_its_unit_is_named_with_the_pointer_beside_it(tmp_path: Path) -> None:
    view, told = found(tmp_path)
    assert told.summary == (
        '"p" of PyArg_ParseTuple() (ops.c:6) stores an int of 4 bytes into `clip`, a bool of 1 byte: what lies beside '
        "it is overwritten, most likely `windows`"
    )
    assert told.advice.startswith('Declare `clip` as int (ops.c:5): that is what the unit "p" of PyArg_ParseTuple()')
    source = null_source(view, with_forward=False)
    assert source is not None
    assert source.summary == told.summary
    wild = overwritten_by_parse(view)
    assert wild is not None
    assert wild.clause(view) == f": {told.summary}"


@pytest.mark.parametrize(
    ("declared", "form", "unit", "variable"),
    [
        ("PyObject *a; short n;", '"Oi", &a, &n', "i", "n"),
        ("PyArrayObject *a = NULL, *b = NULL; int most = 5;", '"O!O!n", &T, &a, &T, &b, &most', "n", "most"),
        ("PyObject *a; float scale = 1.0f;", '"O|d:standardize", &a, &scale', "d", "scale"),
        ("const char *a; int length;", '"s#", &a, &length', "s#", "length"),
        ("PyObject *a; unsigned char on;", '"O(ip)", &a, &i, &on', "p", "on"),
        ("PyObject *a; int first, last;", '"O" "il", &a, &first, &last', "l", "last"),
    ],
)
def test_units_of_other_types_are_read(declared: str, form: str, unit: str, variable: str, tmp_path: Path) -> None:
    source = SOURCE.replace("PyArrayObject *windows;\n    bool clip;", f"int i;\n{declared}").replace("windows", "a")
    source = source.replace('"O!p", &PyArray_Type, &a, &clip', form)
    told = found(tmp_path, source)[1]
    assert (told.stored.unit, told.variable.name) == (unit, variable)


def test_call_with_names_has_its_format_behind_them(tmp_path: Path) -> None:
    source = SOURCE.replace("PyArg_ParseTuple(args, ", "PyArg_ParseTupleAndKeywords(args, kwargs, ").replace(
        '"O!p", ', '"O!|$p", names, '
    )
    told = found(tmp_path, source)[1]
    assert told is not None
    assert told.function == "PyArg_ParseTupleAndKeywords"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bool clip;", "int clip;"),  # as the unit wants it
        ("bool clip;", "static bool clip;"),  # no neighbour of the pointer
        ("bool clip;", "clip_t clip;"),  # of a size that is not known
        ('"O!p"', "FORMAT"),
        ("&clip)", "&options.clip)"),
        ("PyArray_DIM(windows, 0)", "shared_count[7]"),  # the failing line goes through no local pointer
        ('"O!p", &PyArray_Type, &windows, &clip', '"O!", &PyArray_Type, &windows'),
        ('"O!p", &PyArray_Type, &windows, &clip', '"pO!", &clip, &PyArray_Type, &windows'),  # stored after it
        ("    npy_intp count", "    windows = PyArray_FROM_OTF(windows, 12, 0);\n    npy_intp count"),
        ("    npy_intp count", "    if (copied(self, &windows)) return NULL;\n    npy_intp count"),
    ],
)
def test_variables_that_fit_or_are_not_known_explain_nothing(old: str, new: str, tmp_path: Path) -> None:
    source = SOURCE.replace(old, new)
    assert found(tmp_path, source, "npy_intp count")[1] is None


def test_pointer_that_was_made_after_the_call_is_not_overwritten_by_it(tmp_path: Path) -> None:
    source = SOURCE.replace(
        "npy_intp count", "float *rows = PyArray_DATA(windows);\n    rows[at[7]] = 1;\n    npy_intp c"
    )
    assert found(tmp_path, source, "rows[at[7]]")[1] is None


def test_pointer_of_an_argument_that_may_be_left_out_is_not_called_overwritten(tmp_path: Path) -> None:
    source = SOURCE.replace("*windows;", "*windows = NULL;").replace('"O!p"', '"|O!p"')
    assert found(tmp_path, source)[1] is None
    assert found(tmp_path, source.replace("|", ""))[1] is not None
    assert (
        found(tmp_path, source.replace("|", "").replace("O!p", "p").replace("&PyArray_Type, &windows,", ""))[1] is None
    )


def test_variable_of_a_later_block_is_another_one(tmp_path: Path) -> None:
    source = SOURCE.replace("bool clip;", "int clip;").replace("    npy_intp", "    bool clip = 0;\n    npy_intp")
    assert found(tmp_path, source)[1] is None


def test_mismatch_of_another_function_explains_nothing(tmp_path: Path) -> None:
    source = (
        SOURCE + "static PyObject *other(PyObject *self, PyObject *args)\n{\n    float *a = rows;\n    a[5] = 1;\n}\n"
    )
    view = native_view(tmp_path, PROGRAM, source, at="ext.standardize", way=[("other", "a[5]")], addr=0)
    assert parsed_argument(view) is None
