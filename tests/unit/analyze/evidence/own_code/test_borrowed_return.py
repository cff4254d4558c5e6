"""A lasting object that is returned without a reference of its own, by the source beside the library."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code.borrowed_return import borrowed_return
from pytracer.decode.types.snapshot import PythonFrame
from pytracer.report.job import NativeFrame

PHONONS = """static PyObject *run(PyObject *self, PyObject *args)
{
    if (!args) {
        {other}
    }
    work(args);
    {returns}
}
"""


def crashed(run: Path, source: str, *, noticed: str = "_Py_FatalRefcountErrorFunc") -> Any:
    file, library, program = run / "phonons.c", run / "phonons.so", run / "train.py"
    file.write_text(source, encoding="utf-8")
    library.write_bytes(b"")
    os.utime(file, (1000, 1000))
    program.write_text("for x in y:\n    phonons.run(x)\n", encoding="utf-8")
    frame = PythonFrame("main", str(program), 2)
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    crash = SimpleNamespace(python_stack=(frame,), images=(SimpleNamespace(path=str(library)),))
    stack = [NativeFrame(function=noticed, image="/usr/lib/libpython3.11.so")]
    return SimpleNamespace(crash=crash, process=SimpleNamespace(snapshot=snapshot), native_stack=stack)


@pytest.mark.parametrize(
    ("thing", "macro"), [("Py_None", "Py_RETURN_NONE"), ("Py_True", "Py_RETURN_TRUE"), ("Py_Ellipsis", "Py_NewRef(")]
)
def test_the_return_is_named_with_its_callers(thing: str, macro: str, tmp_path: Path) -> None:
    source = PHONONS.replace("{other}", "return NULL;").replace("{returns}", f"return {thing};")
    found = borrowed_return(crashed(tmp_path, source))
    assert found is not None
    assert found.summary == f"run(), which line 2 calls, returns {thing} without a reference (phonons.c:7)"
    assert macro in found.advice


@pytest.mark.parametrize(
    ("other", "returns"),
    [
        ("return NULL;", "Py_INCREF(Py_None); return Py_None;"),
        ("return NULL;", "Py_RETURN_NONE;"),
        ("return NULL;", "PyObject *r = Py_NewRef(Py_None); return r;"),
        ("return Py_True;", "return Py_None;"),  # either may be it
    ],
)
def test_owned_objects_are_returned_rightly(other: str, returns: str, tmp_path: Path) -> None:
    source = PHONONS.replace("{other}", other).replace("{returns}", returns)
    assert borrowed_return(crashed(tmp_path, source)) is None


def test_another_abort_has_nothing_to_do_with_it(tmp_path: Path) -> None:
    source = PHONONS.replace("{other}", "return NULL;").replace("{returns}", "return Py_None;")
    assert borrowed_return(crashed(tmp_path, source, noticed="fatal_error_exit")) is None
