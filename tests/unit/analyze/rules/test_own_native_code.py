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
    file = run / "job.py"
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


COUNTS = SOURCE.replace("const double *x", "const int *x")


@pytest.mark.parametrize(
    ("use", "named"),
    [("for (long i = 0; i < x[0]; i++) out[i] = 0;", True), ("out[x[0] & 15] = x[1];", False)],
    ids=["a length", "a mask"],
)
def test_floats_that_are_read_as_a_length_are_named(use: str, named: bool, run: Path, tmp_path: Path) -> None:
    source = COUNTS.replace("out[n - 1] = x[0];", use)
    report = summed(run, tmp_path, source=source, out="float64", x="float64")
    said = "`x` [87] float64, which line 7 passes, is read as int by cumulative() (cum.c:1), where 1.0 is 1072693248"
    assert (said in summary(report)) == named
    assert ("Make `x` int32 (`.astype(np.int32)`)" in advice(report)) == named
    assert "is read as" not in summary(summed(run, tmp_path, source=source, out="float64", x="int32"))


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


METHOD = """from build import ops


class Confusion:
    def update(self, pred, label):
        ops.confusion(pred.data_ptr(), label.data_ptr(), self.matrix.data_ptr())


def main(metric, pred, {name}):
    metric.update(pred, {name})
    return pred
"""


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (METHOD.format(name="target"), True),
        (METHOD.format(name="target").replace("metric.update(pred, target)", "other(pred, target)"), False),
        (METHOD.format(name="target").replace("metric.update(pred, target)", "metric.update(pred, pred)"), False),
    ],
)
def test_numbers_that_a_returned_function_was_passed_are_its_caller_s(text: str, named: bool, run: Path) -> None:
    file = script(run, text)
    at = PythonFrame("main", file, 11)
    target = Argument(
        1, LABELS_AT, 16, 0, (16,), 1, "uint8", "cpu", minimum=0, maximum=255, frame=0, outer_frame=2, register=None,
        how="reference",
    )  # fmt: skip
    report = died(
        run, box=Box(pid=101).alloc(LABELS_AT, 128), python=[("main", file, 11)], arguments=(target,),
        holders=(Holder("local", "target", LABELS_AT, at, True, elements=16),),
        images=(image("/home/me/job/ops.so"),), mappings=[PROGRAM], **DAMAGED,
    )  # fmt: skip
    assert "First suspect is confusion() of ops.so, to which line 6 passes" in advice(report)
    assert ("`label` (0..255)" in advice(report)) == named


KEPT = """import ctypes
lib = ctypes.CDLL("./libt.so")


def install(weights):
    table = weights.astype("f4")
    lib.set_table({given}.ctypes.data, {given}.size)


def main():
    return lib.lookup(3)
"""
BLOCK = 0x7F1A_44CB_D010  # where malloc() puts a large block


@pytest.mark.parametrize(("given", "named"), [("table", True), ("weights", False)])
def test_address_of_a_local_that_native_code_kept_is_named(given: str, named: bool, run: Path) -> None:
    file = script(run, KEPT.format(given=given))
    report = died(
        run, addr=BLOCK, python=[("main", file, 11)], stack_of=[("/home/me/job/libt.so", "lookup"), PYTHON],
        images=(image("/home/me/job/libt.so"),),
        mappings=[PROGRAM, (0x7FFC_0000_0000, 0x7FFC_0000_1000, "rw-p", 0, "[stack]")],
    )  # fmt: skip
    assert verdict(report)[0] == "wild-pointer"
    assert advice(report).startswith("Keep `table` of install(), whose address line 7 passes to set_table()") == named


def test_crash_without_a_line_of_python_says_nothing_of_one(run: Path) -> None:
    report = died(
        run, addr=0x1_2345_0356, python=[], stack_of=[("/home/me/job/ops.so", "visit"), PYTHON],
        images=(image("/home/me/job/ops.so"),), mappings=[PROGRAM],
    )  # fmt: skip
    assert verdict(report)[0] == "wild-pointer" and "the native code passes" not in advice(report)


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
