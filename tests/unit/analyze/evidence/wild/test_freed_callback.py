"""Callbacks that C calls after Python has freed them, and faults below callbacks that are alive."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import LIBC_SO, advice, died, summary, verdict

pytestmark = needs_capstone

LOAD = bytes.fromhex("4c8b44c718")  # mov r8, qword ptr [rdi + rax*8 + 0x18]
NULL: dict[str, Any] = {"addr": 0x18, "registers": {"rdi": 0, "rax": 0}, "code_bytes": LOAD}
CTYPES, FFI = "/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so", "/usr/lib/libffi.so.8"
CFFI = "/venv/lib/python3.11/site-packages/_cffi_backend.cpython-311-x86_64-linux-gnu.so"
OWN = "/home/user/job/libsolver.so"
EVALUATES = (s.PYTHON, "_PyEval_EvalFrameDefault")
CALLED_BACK = [EVALUATES, (s.PYTHON, "PyObject_Vectorcall"), (CTYPES, "_CallPythonObject"), (CTYPES, "closure_fcn")]
CLOSURE = (FFI, None)
CALL = [(FFI, "ffi_call"), (CTYPES, "_ctypes_callproc"), EVALUATES]
STACK = [*CALLED_BACK, CLOSURE, (OWN, "solver_fit"), *CALL]
PROGRAM = """import ctypes
from cffi import FFI
ffi = FFI()
REPORT = ctypes.CFUNCTYPE(None, ctypes.c_int)
lib = ctypes.CDLL("libsolver.so")
def fit(x):
    return lib.solver_fit(x.data_ptr())
def attach():
    {}
"""


def crashed(run: Path, given: str, stack: Any = STACK, python: tuple[str, ...] = ("fit",)) -> Report:
    file = run / "fit.py"
    file.write_text(PROGRAM.format(given.replace("\n", "\n    ")), encoding="utf-8")
    os.utime(file, (0, 0))  # before the recorded process began
    frames = [(name, str(file), 7) for name in python]
    return died(run, stack_of=stack, python=frames, **NULL)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("lib.on(REPORT(report))", "`REPORT(report)` of line 9, which nothing holds"),
        (
            "lib.on(ctypes.CFUNCTYPE(None, ctypes.c_int)(self.report))",
            "`CFUNCTYPE(...)(self.report)` of line 9, which nothing holds",
        ),
        ("lib.on(REPORT(lambda row: None))", "`REPORT(lambda row: None)` of line 9, which nothing holds"),
        ("cb = REPORT(report)\nlib.on(cb)", "`REPORT(report)` of line 9, which only `cb` of attach() held"),
        (
            "@REPORT\ndef tell(row):\n    print(row)\nlib.on(tell)",
            "`@REPORT def tell` of line 10, which only `tell` of attach() held",
        ),
        ("lib.on(ffi.callback('void(int)', report))", "`ffi.callback(..., report)` of line 9, which nothing holds"),
    ],
    ids=["prototype", "no name", "lambda", "local variable", "decorator", "cffi"],
)
def test_a_callback_that_nothing_holds_is_named(given: str, says: str, run: Path) -> None:
    report = crashed(run, given)
    assert verdict(report) == ("use-after-free", "likely")
    assert "died because C called a callback of " in summary(report)
    assert summary(report).endswith(f": solver_fit() called {says}.")
    assert advice(report).startswith(f"Keep {says.partition(', which')[0]} in an attribute")
    assert advice(report).count("in an attribute or a variable of the module") == 1
    assert "something is null" not in advice(report)


@pytest.mark.parametrize(
    "given",
    [
        "lib.kept = REPORT(report)\nlib.on(lib.kept)",
        "callbacks.append(REPORT(report))\nlib.on(callbacks[0])",
        "cb = REPORT(report)\nlib.on(cb)\nreturn cb",
        "cb = REPORT(report)\nlib.on(cb)\nself.cb = cb",
        "cb = REPORT(report)\nlib.on(cb)\nkeep.append(cb)",
        "global cb\ncb = REPORT(report)\nlib.on(cb)",
        "@REPORT\ndef tell(row):\n    print(row)\nlib.on(tell)\nreturn tell",
        "self.on(REPORT(report))",
        "attach(REPORT(report))",
        "lib.on(Report(report))",
    ],
    ids=[
        "attribute",
        "list",
        "returned",
        "kept",
        "kept in a list",
        "global",
        "decorated",
        "method",
        "own function",
        "other class",
    ],
)
def test_a_callback_that_may_be_held_is_not_accused(given: str, run: Path) -> None:
    report = crashed(run, given)
    assert verdict(report)[0] == "null-dereference" and "collected" not in summary(report)


@pytest.mark.parametrize(
    ("stack", "python"),
    [
        (STACK, ("report", "fit")),
        ([(OWN, "solver_fit"), *CALL], ("fit",)),
        ([*CALL[:2], EVALUATES, (OWN, "solver_fit"), *CALL], ("fit",)),
        (CALL, ("fit",)),
    ],
    ids=["its own code was running", "C called nothing", "C called Python otherwise", "on the way into C"],
)
def test_faults_elsewhere_are_not_of_the_callback(stack: Any, python: tuple[str, ...], run: Path) -> None:
    report = crashed(run, "lib.on(REPORT(report))", stack, python)
    assert "collected" not in summary(report) and "REPORT" not in advice(report)


def test_a_signal_handler_of_c_is_a_callback_too(run: Path) -> None:
    """What the kernel called has no name of the program's."""
    stack = [*CALLED_BACK, CLOSURE, (LIBC_SO, None), (LIBC_SO, "kill"), EVALUATES]
    report = crashed(run, "libc.signal(10, REPORT(lambda number: None))", stack)
    assert ": C called `REPORT(lambda number: None)` of line 9, which nothing holds." in summary(report)


def test_the_code_that_libffi_made_may_be_overwritten_itself(run: Path) -> None:
    """C then runs what took its place, in memory of no library."""
    stack = [(None, None), (OWN, "bus_publish"), (CFFI, "ffi_call_unix64"), (CFFI, "cdata_call"), EVALUATES]
    report = crashed(run, "lib.on(ffi.callback('void(int)', report))", stack)
    assert "bus_publish() called `ffi.callback(..., report)` of line 9" in summary(report)


@pytest.mark.parametrize(
    ("stack", "freed"),
    [(STACK, True), ([("/opt/torch/lib/libtorch_cpu.so", "at::native::add_kernel"), *STACK], False)],
    ids=["the interpreter", "an operator"],
)
def test_interpreter_that_fails_in_the_code_of_a_dropped_callback_runs_what_was_freed(
    stack: Any, freed: bool, run: Path
) -> None:
    """It was a bound method that only the callback held. The look-alike: what that code calls fails by itself."""
    report = crashed(run, "cb = REPORT(self.report)\nlib.on(cb)", stack, ("Model.report", "fit"))
    assert ("`REPORT(self.report)` of line 9, which only `cb` of attach() held" in summary(report)) == freed
    assert (verdict(report)[0] == "use-after-free") == freed
