"""A field of a Structure that ctypes followed to text, where no struct of C is known."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import ctypes_access
from pytracer.analyze.evidence.own_code import unfit_structure as module
from pytracer.analyze.evidence.own_code.struct_fields import c_structures
from pytracer.report.job import NativeFrame
from tests.unit.analyze.evidence.own_code.test_differing_layout import GETTER, SCAN, STRLEN, structure

CLASS = structure("ScanStruct", count="c_long", edge="c_char_p", labels="POINTER(ctypes.c_char_p)", data="c_void_p")
TEXT, ADDRESS, NUMBERS = int.from_bytes(b"no error", "little"), 0x7F16_DEF7_8000, 0x3F80_0000_3F80_0000
ELEMENT = "an element of `labels` of ScanStruct (line 2) is no address; the class may not fit"
DIRECT = "`edge` of ScanStruct (line 2) is no address; the class most likely does not fit"


def found(
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    *,
    source: str = CLASS,
    native: str = "",
    pointer: int = TEXT,
    stack: tuple[tuple[str, str | None], ...] = (STRLEN, GETTER),
) -> str | None:
    """What is said of a line that a pointer was followed for."""
    frame = SimpleNamespace(file="/t/train.py", line=2)
    for changed in (module, ctypes_access):
        monkeypatch.setattr(changed, "program_frames", lambda view: [frame])
    monkeypatch.setattr(
        ctypes_access, "syntax_tree", lambda snapshot, frame: ast.parse(f"def read(scan):\n    {line}\n")
    )
    monkeypatch.setattr(module, "program_files", lambda snapshot, frames: {"/t/train.py": ast.parse(source)})
    monkeypatch.setattr(module, "declared_structures", lambda view, trees: c_structures(native, "scan.h"))
    monkeypatch.setattr(module, "place_of", lambda view, file, line: f"line {line}")
    view: Any = SimpleNamespace(
        process=SimpleNamespace(snapshot=None),
        native_stack=[NativeFrame(image=image, function=function) for image, function in stack],
        instruction=SimpleNamespace(base_value=pointer),
        place=None,
    )
    told = module.unfit_structure(view)
    return f"{told.summary(view)}. {told.advice(view)}" if told is not None else None


@pytest.mark.parametrize(
    ("line", "words"),
    [("names = [scan.labels[i].decode() for i in range(9)]", ELEMENT), ("edge = scan.edge.decode()", DIRECT)],
    ids=["element", "field"],
)
def test_a_pointer_that_is_text_is_of_the_field_that_the_line_reads(
    line: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content of the field itself says more than that of what it points at, which may have been written over."""
    said = found(monkeypatch, line)
    assert said is not None
    assert said.startswith(words)
    assert "Compare `_fields_` of ScanStruct (line 2)" in said


@pytest.mark.parametrize("pointer", [ADDRESS, NUMBERS, 0])
def test_a_pointer_that_is_no_text_says_nothing_of_the_structure(pointer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, "edge = scan.edge.decode()", pointer=pointer) is None


def test_a_field_that_ctypes_does_not_follow_is_not_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number, or the address itself."""
    assert found(monkeypatch, "n = scan.count") is None
    assert found(monkeypatch, "n = scan.data") is None
    assert found(monkeypatch, "n = scan.other") is None


def test_where_the_struct_of_c_is_known_it_is_compared_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, "edge = scan.edge.decode()", native=SCAN) is None


def test_two_structures_with_the_field_are_not_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    both = CLASS + CLASS.replace("ScanStruct", "OldStruct")
    assert found(monkeypatch, "edge = scan.edge.decode()", source=both) is None


def test_a_function_that_ctypes_called_reads_no_field(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = (STRLEN, ("/usr/lib/libffi.so.8", "ffi_call"), GETTER)
    assert found(monkeypatch, "lib.use(scan.edge)", stack=stack) is None
