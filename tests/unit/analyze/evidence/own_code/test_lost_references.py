"""What the program's own C gives away of Python's objects though it was only lent, by the source beside the library."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.lost_references import lost_reference
from pytracer.decode.types.snapshot import PythonFrame
from pytracer.report.job import NativeFrame

LOOKUP = """PyObject *lookup(PyObject *table, PyObject *key)
{
    PyObject *item = PyDict_GetItem(table, key);
    if (item == NULL) {
        Py_RETURN_NONE;
    }
    {ends}
}
"""


def crashed(run: Path, source: str, *, innermost: str = "list_dealloc", calls: str = "lib.lookup(x)") -> Any:
    """Of a program that calls a library with this source."""
    file, library, program = run / "table.c", run / "table.so", run / "train.py"
    file.write_text(source, encoding="utf-8")
    library.write_bytes(b"")
    os.utime(file, (1000, 1000))
    program.write_text(f"for x in y:\n    {calls}\n", encoding="utf-8")
    frame = PythonFrame("main", str(program), 2)
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    crash = SimpleNamespace(python_stack=(frame,), images=(SimpleNamespace(path=str(library)),))
    stack = [NativeFrame(function=innermost, image="/usr/lib/libpython3.11.so")]
    return SimpleNamespace(crash=crash, process=SimpleNamespace(snapshot=snapshot), native_stack=stack)


def test_lent_object_that_is_returned_is_named_with_its_callers(tmp_path: Path) -> None:
    found = lost_reference(crashed(tmp_path, LOOKUP.replace("{ends}", "return item;")))
    assert found is not None
    assert found.summary.endswith("lookup(), which line 2 calls, returns what PyDict_GetItem() only lends (table.c:7)")
    assert found.advice.startswith("Write `return Py_XNewRef(item);` at table.c:7")


def test_lent_object_that_is_given_back_is_named(tmp_path: Path) -> None:
    source = LOOKUP.replace("{ends}", "Py_DECREF(item);\n    return PyLong_FromLong(1);")
    found = lost_reference(crashed(tmp_path, source))
    assert found is not None
    assert "lookup(), which line 2 calls, calls Py_DECREF of what PyDict_GetItem() only lends" in found.summary
    assert found.advice.startswith("Leave out Py_DECREF of `item` at table.c:7")


def test_call_that_is_returned_at_once_is_written_whole(tmp_path: Path) -> None:
    source = "PyObject *lookup(PyObject *rows)\n{\n    return PyList_GetItem(rows, at(0));\n}\n"
    found = lost_reference(crashed(tmp_path, source))
    assert found is not None
    assert "`return Py_XNewRef(PyList_GetItem(rows, at(0)));` at table.c:3" in found.advice


@pytest.mark.parametrize(
    "ends",
    [
        "Py_INCREF(item); return item;",
        "Py_INCREF((PyObject *)item); return item;",
        "Py_IncRef(item); return item;",
        "return Py_NewRef(item);",
        "return PyNumber_Float(item);",
        "item = PyNumber_Float(item); return item;",
    ],
)
def test_object_of_its_own_is_returned_rightly(ends: str, tmp_path: Path) -> None:
    assert lost_reference(crashed(tmp_path, LOOKUP.replace("{ends}", ends))) is None


def test_helper_that_only_its_own_c_calls_may_lend_as_well(tmp_path: Path) -> None:
    source = LOOKUP.replace("{ends}", "return item;")
    assert lost_reference(crashed(tmp_path, source, calls="lib.rows(x)")) is None
    table = 'static PyMethodDef methods[] = {{"rows", (PyCFunction)lookup, METH_O, ""}};\n'
    assert lost_reference(crashed(tmp_path, source + table, calls="lib.rows(x)")) is not None


def test_helper_that_takes_a_reference_is_followed(tmp_path: Path) -> None:
    helper = "static PyObject *kept(PyObject *o)\n{\n    Py_XINCREF(o);\n    return o;\n}\n"
    source = helper + LOOKUP.replace("{ends}", "kept(item); return item;")
    assert lost_reference(crashed(tmp_path, source)) is None
    source = helper.replace("Py_XINCREF(o);", "") + LOOKUP.replace("{ends}", "kept(item); return item;")
    assert lost_reference(crashed(tmp_path, source)) is not None


def test_method_of_python_that_has_the_name_of_a_helper_is_another(tmp_path: Path) -> None:
    source = LOOKUP.replace("{ends}", "return item;")
    crash = crashed(tmp_path, source, calls="vocabulary.lookup(x)")
    (tmp_path / "train.py").write_text(
        "for x in y:\n    vocabulary.lookup(x)\nclass Vocabulary:\n    def lookup(self, x):\n"
        "        return lib.rows(x)\n"
    )
    assert lost_reference(crash) is None


def test_another_function_of_the_interpreter_says_nothing(tmp_path: Path) -> None:
    source = LOOKUP.replace("{ends}", "return item;")
    assert lost_reference(crashed(tmp_path, source, innermost="_PyEval_EvalFrameDefault")) is None
