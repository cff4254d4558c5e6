"""A crash while a library was loaded, and a function that ran past its end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.native.loading import loading, ran_past_end
from pytracer.report.job import NativeFrame, PythonFrame
from tests.support import elf

OPS, LD, PYTHON = "/x/ops.so", "/lib64/ld-linux-x86-64.so.2", "/x/libpython3.11.so.1.0"
BUILD_ID = b"\x12" * 20
EVALUATE = (PYTHON, "_PyEval_EvalFrameDefault")
CREATE = (PYTHON, "_PyImport_LoadDynamicModuleWithSpec")
INIT = (OPS, "PyInit_ops")
GLOBALS = (OPS, "_GLOBAL__sub_I_ops.cpp")
IMPORT = PythonFrame(
    function="ExtensionFileLoader.create_module", file="<frozen importlib._bootstrap_external>", line=1
)
CDLL = PythonFrame(function="CDLL.__init__", file="/usr/lib/python3.11/ctypes/__init__.py", line=376)
STRING_AT = PythonFrame(function="string_at", file="/usr/lib/python3.11/ctypes/__init__.py", line=519)
OWN = PythonFrame(function="load", file="/x/train.py", line=4)


def view_of(python: PythonFrame, *frames: tuple[str, str | None]) -> Any:
    """A crash in these functions, innermost first."""
    stack = [NativeFrame(image=image, function=function) for image, function in frames]
    return SimpleNamespace(
        native_stack=stack, python_stack=[python, OWN], crash=object(), python_frame=OWN, is_fault=True
    )


@pytest.mark.parametrize(
    ("python", "frames", "step"),
    [
        (IMPORT, (GLOBALS, (LD, "call_init"), (LD, "_dl_init"), CREATE, EVALUATE), "constructors"),
        (CDLL, (GLOBALS, (LD, "call_init"), (LD, "_dl_init"), EVALUATE), "constructors"),
        (IMPORT, (INIT, CREATE, EVALUATE), "PyInit"),
        (IMPORT, (INIT, (PYTHON, "PyModule_ExecDef"), EVALUATE), "Py_mod_exec"),
    ],
)
def test_library_that_is_being_loaded_is_named(python: PythonFrame, frames: tuple[Any, ...], step: str) -> None:
    """With what of it ran."""
    found = loading(view_of(python, *frames))
    assert found is not None
    assert step in found.step
    assert found.image == OPS


@pytest.mark.parametrize(
    ("python", "frames"),
    [
        (OWN, ((OPS, "project"), EVALUATE)),
        (OWN, (GLOBALS, (LD, "call_init"), EVALUATE)),  # what an earlier import left on the stack
        (STRING_AT, (("/lib/libc.so.6", "strlen"), (LD, "call_init"), EVALUATE)),
        (IMPORT, ((OPS, "project"), EVALUATE, INIT, CREATE)),  # Python code that an import runs
    ],
)
def test_call_after_the_import_is_none(python: PythonFrame, frames: tuple[Any, ...]) -> None:
    """The look-alikes."""
    assert loading(view_of(python, *frames)) is None


@pytest.mark.parametrize(
    ("offset", "function"),
    [(0x1100, "PyInit_ops"), (0x1110, "PyInit_ops"), (0x10F0, None), (0x1180, None), (0x1200, None)],
)
def test_instruction_right_behind_a_function_ran_past_its_end(
    offset: int, function: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one inside of a function, nor far from any."""
    monkeypatch.setattr("pytracer.analyze.evidence.native.loading.is_own_path", lambda path: True)
    path = elf.write(
        tmp_path / "ops.so", elf.image([("PyInit_ops", 0x1000, 0x100), ("other", 0x1200, 0x10)], build_id=BUILD_ID)
    )
    frame = NativeFrame(image=str(path), offset=hex(offset), build_id=BUILD_ID.hex())
    view: Any = SimpleNamespace(native_stack=[frame], python_stack=[OWN], crash=object(), is_fault=True)
    found = ran_past_end(view)
    assert (found.function if found is not None else None) == function
