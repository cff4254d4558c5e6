"""Native code that calls Python where it has released the GIL, by the stack and by its source."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import own_steps, released_gil
from pytracer.analyze.evidence.own_code.released_gil import called_without_gil
from pytracer.report.job import NativeFrame, SourceLine

GRAPH = """\
#include <Python.h>
static void notify(PyObject *hook, int step) {
{take}    PyObject *r = PyObject_CallFunction(hook, "i", step);
    Py_XDECREF(r);
}
static PyObject *run(PyObject *self, PyObject *args) {
{before}    for (int i = 0; i < 4; i++) {
        if (hook) notify(hook, i);
    }
{behind}    Py_RETURN_NONE;
}
"""
BEGIN, END = "    Py_BEGIN_ALLOW_THREADS\n", "    Py_END_ALLOW_THREADS\n"
ENSURE, RELEASE = "    PyGILState_STATE s = PyGILState_Ensure();\n", "    PyGILState_Release(s);\n"
PYTHON, STATIC = "/usr/lib/libpython3.11.so.1.0", "/opt/conda/bin/python3.12"
CALLS = ("_PyEvalFramePushAndInit", "_PyEval_Vector", "_PyObject_CallFunctionVa", "PyObject_CallFunction")
FIELD = 0x130


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """The files of the program with the C that they have as text; none, unless a test adds one."""
    files: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(released_gil, "program_frames", lambda view: [])
    monkeypatch.setattr(own_steps, "program_sources", lambda view, libraries, frames: files)
    return files


def view_of(
    folder: Path,
    source: str | None = None,
    *,
    called: tuple[str, ...] = CALLS,
    image: str = PYTHON,
    addr: int = FIELD,
    between: tuple[NativeFrame, ...] = (),
    **crash: Any,
) -> Any:
    """A process that died in the interpreter, which notify(), called by run(), had called."""
    file, library = folder / "graph.c", folder / "graph.so"
    library.write_bytes(b"")
    if source is not None:
        file.write_text(source, encoding="utf-8")
        os.utime(file, (1000, 1000))
    inner, outer = (line_of(source or "", text) for text in ("PyObject_CallFunction(", "notify(hook, i)"))
    lines = [
        SourceLine(function="notify", file=str(file), line=inner),
        SourceLine(function="run", file=str(file), line=outer),
    ]
    frames = [
        *(NativeFrame(image=image, function=name) for name in called),
        *between,
        NativeFrame(image=str(library), function="run", lines=lines if source is not None else None),
        NativeFrame(image=image, function="cfunction_call"),
        NativeFrame(image=image, function="_PyEval_EvalFrameDefault"),
    ]
    return SimpleNamespace(
        native_stack=frames,
        python_stack=[],
        crash=SimpleNamespace(**{"python_matched": True, "python_stack": (1,), "tid": 1, **crash}),
        place=SimpleNamespace(addr=addr, kind="near-null"),
        instruction=SimpleNamespace(base_value=0, index=None),
        process=SimpleNamespace(snapshot=SimpleNamespace(pid=1)),
    )


def line_of(source: str, text: str) -> int:
    return next((number for number, line in enumerate(source.splitlines(), 1) if text in line), 1)


def graph(*, take: str = "", before: str = BEGIN, behind: str = END) -> str:
    return GRAPH.replace("{take}", take).replace("{before}", before).replace("{behind}", behind)


def test_the_caller_and_the_line_that_released_the_gil_are_named(tmp_path: Path) -> None:
    found = called_without_gil(view_of(tmp_path, graph()))
    assert found is not None
    assert found.summary == (
        "notify() (graph.c:3) of graph.so called Python (PyObject_CallFunction) while the GIL was released, by "
        "Py_BEGIN_ALLOW_THREADS (graph.c:7) in run(), so that there is no thread state"
    )
    assert "Take the GIL in notify() around the call of Python at graph.c:3" in found.advice
    assert "PyGILState_Ensure()" in found.advice
    assert "pybind11" not in found.advice


def test_a_guard_of_pybind11_has_released_it_as_well(tmp_path: Path) -> None:
    text = "#include <pybind11/pybind11.h>\n" + graph(before="    py::gil_scoped_release nogil;\n", behind="")
    found = called_without_gil(view_of(tmp_path, text))
    assert found is not None
    assert "by gil_scoped_release (graph.c:8) in run()" in found.summary
    assert "`py::gil_scoped_acquire gil;`" in found.advice
    bound = 'm.def("run", &run, py::arg("x"),\n      py::call_guard<py::gil_scoped_release>());\n'
    found = called_without_gil(view_of(tmp_path, graph(before="", behind="") + bound))
    assert found is not None
    assert "by call_guard<gil_scoped_release> (graph.c:13) in run()" in found.summary


@pytest.mark.parametrize(
    "source",
    [None, graph(before="", behind=""), graph(before=BEGIN + END), graph(before=f"    {{\n{BEGIN}    }}\n")],
    ids=["no source", "released elsewhere", "taken back", "in a block that is closed"],
)
def test_without_such_a_line_only_the_caller_is_named(source: str | None, tmp_path: Path) -> None:
    found = called_without_gil(view_of(tmp_path, source))
    assert found is not None
    assert found.release is None
    assert "called Python (PyObject_CallFunction) without holding the GIL" in found.summary
    assert "of graph.so" in found.summary


def test_the_text_that_the_program_compiled_is_read_where_its_file_is_gone(
    program: list[tuple[str, list[str]]], tmp_path: Path
) -> None:
    program.append(("/t/train.py", ["", *graph().splitlines()]))
    view = view_of(tmp_path, graph())
    (tmp_path / "graph.c").unlink()
    found = called_without_gil(view)
    assert found is not None
    assert "by Py_BEGIN_ALLOW_THREADS (train.py:8) in run()" in found.summary


def test_a_function_that_takes_the_gil_before_the_call_is_not_blamed(tmp_path: Path) -> None:
    assert called_without_gil(view_of(tmp_path, graph(take=ENSURE))) is None
    given_back = called_without_gil(view_of(tmp_path, graph(take=ENSURE + RELEASE)))
    assert given_back is not None


@pytest.mark.parametrize(
    ("called", "addr"),
    [
        (("_PyObject_MakeTpCall", "PyObject_CallFunction"), 0x2C),  # the depth of recursion
        (("_PyErr_Occurred", "PyErr_Occurred"), 0x60),
        (("_Py_CheckFunctionResult", "PyObject_Call"), 0x60),
        (("PyFloat_FromDouble",), 0x10),  # the interpreter
        (("_PyObject_GC_New.constprop.0", "PyDict_New"), 0x10),
        (("_PyFrame_New_NoTrack", "_PyFunction_Vectorcall", "PyObject_CallObject"), 0x18),
        (("_PyThreadState_PushFrame", "_PyEval_Vector", "PyObject_Vectorcall"), 0xE8),
        (("_PyObject_Malloc", "PyLong_FromLong"), 0x10),
    ],
)
@pytest.mark.parametrize("image", [PYTHON, STATIC])
def test_other_functions_that_read_the_thread_state_are_known(
    called: tuple[str, ...], addr: int, image: str, tmp_path: Path
) -> None:
    assert called_without_gil(view_of(tmp_path, called=called, addr=addr, image=image)) is not None


@pytest.mark.parametrize(
    ("called", "addr"),
    [
        (("PyObject_GetAttrString",), 8),  # a null object
        (("PyObject_Call",), 8),
        (("_PyObject_MakeTpCall", "PyObject_CallFunction"), 0x80),  # the call of a null type
        (("PyList_Append",), 0xA8),
        (("_PyEval_EvalFrameDefault", "_PyEval_Vector", "PyObject_CallFunction"), FIELD),  # of Python code that ran
        (("list_sort_impl", "_PyEval_EvalFrameDefault", "PyObject_CallFunction"), FIELD),
        ((), FIELD),  # in its own code
    ],
)
def test_a_null_object_is_no_null_thread_state(called: tuple[str, ...], addr: int, tmp_path: Path) -> None:
    assert called_without_gil(view_of(tmp_path, graph(), called=called, addr=addr)) is None


def test_who_releases_the_gil_by_itself_or_runs_no_python_is_not_meant(tmp_path: Path) -> None:
    """cffi and threads of native code have words of their own; at exit there is no interpreter."""
    ffi = NativeFrame(image="/usr/lib/libffi.so.8", function="ffi_call")
    exits = NativeFrame(image="/lib/libc.so.6", function="__run_exit_handlers")
    assert called_without_gil(view_of(tmp_path, graph(), between=(ffi,))) is None
    assert called_without_gil(view_of(tmp_path, graph(), between=(exits,))) is None
    assert called_without_gil(view_of(tmp_path, graph(), python_matched=False)) is None
    assert called_without_gil(view_of(tmp_path, graph(), python_stack=())) is None


def test_another_register_than_a_null_one_is_no_thread_state(tmp_path: Path) -> None:
    view = view_of(tmp_path, graph())
    view.instruction = SimpleNamespace(base_value=0x130, index=None)
    assert called_without_gil(view) is None
    view.instruction = None
    assert called_without_gil(view) is None


def test_library_that_ctypes_called_had_no_gil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line of the source released it: CDLL does, for a library that is made of Python's C API as well."""
    program = tmp_path / "train.py"
    program.write_text("import ctypes\nlib = ctypes.CDLL('graph.so')\nlib.run()\n", encoding="utf-8")
    tree = ast.parse(program.read_text(encoding="utf-8"))
    monkeypatch.setattr(released_gil, "program_files", lambda snapshot, frames: {str(program): tree})
    view = view_of(tmp_path, graph(before="", behind=""))
    view.native_stack[-2:-2] = [
        NativeFrame(image="/usr/lib/libffi.so.8", function="ffi_call"),
        NativeFrame(image="/usr/lib/_ctypes.cpython-311.so", function="_ctypes_callproc"),
    ]
    found = called_without_gil(view)
    assert found is not None
    assert found.summary.endswith(
        "of graph.so called Python (PyObject_CallFunction) without the GIL, which ctypes.CDLL releases for each call"
    )
    assert found.advice.startswith("Load graph.so by ctypes.PyDLL in place of ctypes.CDLL at train.py:2: it holds")
    assert ". Or take the GIL in notify() around the call" in found.advice
    taken = view_of(tmp_path, graph(take=ENSURE, before="", behind=""))
    taken.native_stack[-2:-2] = view.native_stack[-4:-2]
    assert called_without_gil(taken) is None


@pytest.mark.parametrize("line", ["ctypes.pydll.LoadLibrary('graph.so')", "torch.ops.load_library('graph.so')"])
def test_library_that_no_cdll_calls_is_not_told_to_be_loaded_anew(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyDLL has held the GIL: the source released it, where that is not seen."""
    tree = ast.parse(f"lib = {line}\nlib.run()\n")
    monkeypatch.setattr(released_gil, "program_files", lambda snapshot, frames: {"/t/train.py": tree})
    view = view_of(tmp_path, graph(before="", behind=""))
    view.native_stack[-2:-2] = [NativeFrame(image="/usr/lib/_ctypes.cpython-311.so", function="_ctypes_callproc")]
    found = called_without_gil(view)
    assert found is None or "CDLL" not in found.summary + found.advice
