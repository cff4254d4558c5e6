"""Functions that C runs at exit, and that call Python when there is none any more."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.ends import exit_handler as module
from pytracer.decode.types.snapshot import PythonFrame
from pytracer.decode.types.storages import CallSite
from pytracer.report.job import NativeFrame, SourceLine

C = """static sink_fn sink;
void slog_flush(void)
{
    sink(1);
}
void slog_open(sink_fn fn)
{
    sink = fn;
    if (!opened++) atexit(slog_flush);
}
"""
PYTHON = """SINK = ctypes.CFUNCTYPE(None, ctypes.c_int)
class Log:
    def __init__(self):
        self.lib = ctypes.CDLL("libslog.so")
        self.sink = SINK(self._write)
        self.lib.slog_open(self.sink)
        x = torch.zeros(9)
"""
STACK = ["PyThreadState_New", "PyGILState_Ensure", "_CallPythonObject", "closure_fcn", "slog_flush"]
IMAGES = ["libpython3.11.so.1.0"] * 2 + ["_ctypes.cpython-311-x86_64-linux-gnu.so"] * 2


GIVEN = """libc = ctypes.CDLL(None)
@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)
def report(status, argument):
    print(status)
x = torch.zeros(9)
y = x + 1
libc.on_exit(report, None)
"""


def view_of(
    folder: Path, stack: list[str], source: str = C, images: list[str] | None = None, python: str = PYTHON
) -> Any:
    """A process without Python frames; the last of the stack is of the program's library, at line 4."""
    code, library, program = folder / "slog.c", folder / "libslog.so", folder / "train.py"
    code.write_text(source)
    library.write_text("")
    program.write_text(python)
    os.utime(code, (1, 1))
    frames = [NativeFrame(function=name, image=path) for name, path in zip(stack, images or IMAGES, strict=False)]
    frames.append(NativeFrame(function=stack[-1], image=str(library), lines=[SourceLine(file=str(code), line=4)]))
    frames += [NativeFrame(function=name, image="libc.so.6") for name in ("__run_exit_handlers", "exit")]
    storage = SimpleNamespace(allocated_by=CallSite(python=PythonFrame("Log.__init__", str(program), 7)))
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9, storages=[storage], main_pthread=None)
    crash = SimpleNamespace(python_stack=(), python_threads=())
    return SimpleNamespace(
        native_stack=frames, crash=crash, process=SimpleNamespace(snapshot=snapshot), python_stack=(), python_frame=None
    )


def test_handler_that_calls_a_callback(tmp_path: Path) -> None:
    found = module.exit_handler(view_of(tmp_path, STACK))
    assert isinstance(found, module.ExitHandler)
    assert found.summary == (
        "died at its exit: slog_flush() (slog.c:4) of libslog.so, which C runs when the interpreter has ended "
        "(registered at slog.c:9: `atexit(slog_flush)`), called the callback `SINK(self._write)` (train.py:5) of Python"
    )
    assert found.advice.startswith("Run `self.lib.slog_flush()` while the interpreter is there")
    assert "is lost" in found.advice


def test_function_that_python_cannot_call(tmp_path: Path) -> None:
    found = module.exit_handler(view_of(tmp_path, STACK, C.replace("void slog_flush", "static void slog_flush")))
    assert isinstance(found, module.ExitHandler) and found.own_call is None
    assert "export what slog_flush() does" in found.advice


@pytest.mark.parametrize(
    ("stack", "images"),
    [
        (["slog_flush"], []),
        (["Py_FinalizeEx", *STACK], None),
        (STACK, ["libpython3.11.so.1.0"] * 4),
        (["_PyEval_EvalFrameDefault", *STACK[1:]], None),
    ],
    ids=["a fault of its own", "Python's own end", "no callback", "Python runs"],
)
def test_what_is_no_such_end(stack: list[str], images: list[str] | None, tmp_path: Path) -> None:
    assert module.exit_handler(view_of(tmp_path, stack, images=images)) is None


def test_callback_that_is_given_to_c_itself(tmp_path: Path) -> None:
    view = view_of(tmp_path, [*STACK[:4], "ffi"], python=GIVEN)
    view.native_stack[4] = NativeFrame(image="/usr/lib/libffi.so.8")
    found = module.exit_handler(view)
    assert isinstance(found, module.GivenToExit)
    assert "callback of Python that `libc.on_exit(report, None)` (train.py:7) had given to it" in found.summary
    assert found.advice.startswith("Use Python's atexit.register() at train.py:7")
