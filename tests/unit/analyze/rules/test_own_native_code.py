"""The program's own native code: what it is passed, which library was unloaded, and threads of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.journal import CppException
from pytracer.decode.types.snapshot import Argument, HeldArray, Holder, PythonFrame
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import LIBC_SO, PROGRAM, STDCPP, advice, died, image, summary, verdict
from tests.support.synth import Box

PYTHON = (s.PYTHON, "_PyEval_EvalFrameDefault")
FREES = [(LIBC_SO, "malloc_printerr"), (LIBC_SO, "_int_free"), PYTHON]
DAMAGED: dict[str, Any] = {
    "signal": 6, "code": -6, "sender_pid": 101, "abort_text": "free(): invalid next size (normal)\n", "stack_of": FREES,
}  # fmt: skip
SCRIPT = """import ctypes

LIB = ctypes.CDLL("./libcum.so")


def total(x, out):
    LIB.cumulative(x.ctypes.data, out.ctypes.data, len(x))
    return sum(out)
"""
SOURCE = "void cumulative(const double *x, double *out, long n) {\n  out[n - 1] = x[0];\n}\n"


def script(run: Path, text: str) -> str:
    file = run.parent / "job.py"
    file.write_text(text, encoding="utf-8")
    os.utime(file, (0, 0))  # before the recorded process began
    return str(file)


def summed(run: Path, tmp_path: Path, source: str = SOURCE, out: str = "float32", x: str = "float64") -> Report:
    library, file = tmp_path / "libcum.so", tmp_path / "cum.c"
    file.write_text(source, encoding="utf-8")
    library.write_bytes(b"")
    os.utime(file, (1000, 1000))
    at = PythonFrame("total", script(run, SCRIPT), 8)
    arrays = (HeldArray("x", 0x9000, x, (87,), (8,), at, 0), HeldArray("out", 0xA000, out, (87,), (4,), at, 0))
    images = (image(str(library)),)
    return died(run, python=[("total", at.file, 8)], arrays=arrays, images=images, mappings=[PROGRAM], **DAMAGED)


def test_array_of_smaller_elements_than_the_function_takes_is_named(run: Path, tmp_path: Path) -> None:
    report = summed(run, tmp_path)
    assert (
        "`out` [87] float32, which line 7 passes, has elements of 4 bytes, and cumulative() (cum.c:1) takes double"
        in (summary(report))
    )
    assert "Make `out` float64" in advice(report)


@pytest.mark.parametrize(
    "how",
    [
        {"out": "float64"},
        {"x": "float32", "out": "float64"},  # only read
        {"source": SOURCE.replace("double *out", "float *out")},
        {"source": SOURCE.replace("double *out", "char *out")},
        {"source": SOURCE.replace("cumulative", "other")},
    ],
)
def test_array_that_fits_or_cannot_do_it_is_not_named(how: dict[str, str], run: Path, tmp_path: Path) -> None:
    assert "has elements of" not in summary(summed(run, tmp_path, **how))


LABELS = """from build import ops


def means(features, labels):
    labels[unknown] = -1
    return ops.class_means(features, labels)
"""
LABELS_AT = 0x5581_0000_1000


@pytest.mark.parametrize(("least", "named"), [(-1, True), (0, False)])
def test_negative_numbers_that_the_own_function_is_passed_come_first(least: int, named: bool, run: Path) -> None:
    file = script(run, LABELS)
    at = PythonFrame("means", file, 6)
    labels = Argument(
        1, LABELS_AT, 16, 0, (16,), 1, "int64", "cpu", minimum=least, maximum=9, frame=0, outer_frame=2, register=None,
        how="reference",
    )  # fmt: skip
    report = died(
        run, box=Box(pid=101).alloc(LABELS_AT, 128), python=[("means", file, 6)], arguments=(labels,),
        holders=(Holder("local", "labels", LABELS_AT, at, True, elements=16),),
        images=(image("/home/me/job/ops.so"),), mappings=[PROGRAM], **DAMAGED,
    )  # fmt: skip
    assert verdict(report)[0] == "heap-corruption"
    said = advice(report)
    assert said.startswith("`labels` [16] int64 holds -1, and line 6 passes it to class_means()") == named


UNLOADS = """import _ctypes


class Kernels:
    def __del__(self):
        _ctypes.dlclose(self.handle)


def main(y):
    del y
"""
CODE = 0x7100_0080_0000  # between two libraries


@pytest.mark.parametrize(
    ("text", "target", "fires"),
    [
        (UNLOADS, CODE, True),
        (UNLOADS, 0x4141_4141_4141, False),  # no library was near
        (UNLOADS.replace("dlclose", "noted"), CODE, False),
    ],
)
def test_call_into_an_unloaded_library_names_the_line_that_unloads(
    text: str, target: int, fires: bool, run: Path
) -> None:
    stack = [
        (None, None),
        (s.TORCH_CPU, "c10::deleteInefficientStdFunctionContext(void*)"),
        PYTHON,
    ]
    images = (image("/home/me/job/a.so"), image("/home/me/job/b.so", 1))
    report = died(
        run, signal=11, code=1, addr=target, pc=target, fault_addr=target, python=[("main", script(run, text), 10)],
        stack_of=stack, images=images, mappings=[PROGRAM],
    )  # fmt: skip
    assert verdict(report)[0] == "wild-pointer"
    assert ("its library was unloaded, likely by Kernels.__del__() (line 6)" in summary(report)) == fires
    assert ("Do not unload at line 6" in advice(report)) == fires


TERMINATE = [(LIBC_SO, "raise"), (LIBC_SO, "abort"), (STDCPP, "std::terminate()")]
OWN = ("/home/me/job/ops.so", "parallel_norms(at::Tensor)")


@pytest.mark.parametrize(("tid", "own"), [(102, True), (101, False)])
def test_exception_on_a_thread_of_the_extension_is_to_be_caught_there(tid: int, own: bool, run: Path) -> None:
    """On the main thread pybind11 would have caught it."""
    noted = CppException(tid=tid, type="c10::Error", what="row 6 has no length")
    report = died(
        run, signal=6, code=-6, sender_pid=101, tid=tid, python=[], stack_of=[*TERMINATE, OWN], cpp_exceptions=[noted],
        mappings=[PROGRAM],
    )  # fmt: skip
    assert "nobody caught c10::Error: row 6 has no length" in summary(report)
    assert advice(report).startswith("Catch it in the thread that it left") == own
