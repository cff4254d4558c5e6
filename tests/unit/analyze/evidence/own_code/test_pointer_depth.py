"""A restype with fewer or more pointers than the function of C returns."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import pointer_depth as module
from pytracer.analyze.evidence.own_code.ctypes_access import CtypesRead
from pytracer.analyze.evidence.own_code.own_signature import definitions
from pytracer.analyze.evidence.own_code.pointer_depth import pointer_depth
from pytracer.report.job import PythonFrame

PROGRAM = """import ctypes
class Box(ctypes.Structure):
    _fields_ = [("score", ctypes.c_float), ("prob", ctypes.POINTER(ctypes.c_float))]
lib.boxes.restype = {restype}
def read(lib, n):
    found = lib.boxes(n)
    return [found[i].prob[0] for i in range(n)]
"""
NATIVE = "box {stars}boxes(int n) {\n    return all;\n}"


def found(
    monkeypatch: pytest.MonkeyPatch, restype: str, stars: str, behind: str = "", native: str = NATIVE
) -> str | None:
    program = PROGRAM.replace("{restype}", restype) + behind
    native = native.replace("{stars}", stars)
    monkeypatch.setattr(module, "program_frames", lambda view: [PythonFrame(file="/t/train.py", line=7)])
    monkeypatch.setattr(module, "program_files", lambda snapshot, frames: {"/t/train.py": ast.parse(program)})
    monkeypatch.setattr(
        module, "own_definition", lambda view, name: next(definitions("/t/box.c", native.split("\n"), name), None)
    )
    monkeypatch.setattr(module, "place_of", lambda view, file, line: f"line {line}")
    monkeypatch.setattr(CtypesRead, "of", lambda view: SimpleNamespace(names=frozenset({"prob"})))
    view: Any = SimpleNamespace(process=SimpleNamespace(snapshot=None))
    told = pointer_depth(view)
    return f"{told.summary(view)}. {told.advice(view)}" if told is not None else None


def test_array_of_pointers_is_no_array_of_structures(monkeypatch: pytest.MonkeyPatch) -> None:
    """ctypes reads addresses for the fields of the structure."""
    assert found(monkeypatch, "ctypes.POINTER(Box)", "**") == (
        "boxes() (box.c:1) returns `box **`, where its restype is `ctypes.POINTER(Box)` (line 4). Set the restype of "
        "boxes() to `ctypes.POINTER(ctypes.POINTER(Box))` at line 4: an element of its result is a pointer, whose "
        "structure is `.contents` or `[0]` of it."
    )


def test_array_of_structures_is_no_array_of_pointers(monkeypatch: pytest.MonkeyPatch) -> None:
    told = found(monkeypatch, "ctypes.POINTER(ctypes.POINTER(Box))", "*")
    assert told is not None and "to `ctypes.POINTER(Box)` at line 4: C returns the structures themselves" in told


@pytest.mark.parametrize(
    ("restype", "stars", "behind"),
    [
        ("ctypes.POINTER(Box)", "*", ""),
        ("ctypes.c_void_p", "**", ""),
        ("ctypes.POINTER(Other)", "**", ""),
        ("ctypes.POINTER(Box)", "**", "ctypes.cast(lib.boxes(1), KIND)\n"),
    ],
)
def test_what_agrees_or_may_be_cast_is_not_named(
    restype: str, stars: str, behind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(monkeypatch, restype, stars, behind) is None


@pytest.mark.parametrize(
    "native",
    [
        "typedef struct box_ { float score; } *box;\n",
        "typedef struct box_ *box;\n",
    ],
)
def test_type_that_is_a_pointer_itself_has_no_known_depth(native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    restype = "ctypes.POINTER(ctypes.POINTER(Box))"
    assert found(monkeypatch, restype, "*", native=native + NATIVE) is None
    assert found(monkeypatch, restype, "*", native=NATIVE.replace("box {", "box_t {")) is None


@pytest.mark.parametrize(
    "behind",
    [
        "def read(lib, n):\n    return lib.others(n)[0].prob[0]\n",
        "lib.others.restype = ctypes.POINTER(Box)\ndef read(lib, n):\n    return lib.others(n)[0].prob[lib.boxes(n)]\n",
    ],
)
def test_what_another_function_returned_is_not_of_this_one(behind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = PROGRAM.partition("def read")[0] + behind
    monkeypatch.setitem(globals(), "PROGRAM", program)
    assert found(monkeypatch, "ctypes.POINTER(Box)", "**") is None
