"""Numbers that C called or read through, because a ctypes.Structure has its fields elsewhere than the C struct."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.own_code import differing_layout
from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import LIBC_SO, PROGRAM, advice, died, memory, summary, verdict
from tests.unit.analyze.rules.test_ctypes_calls import CTYPES, FFI, LOAD, PYTHON

pytestmark = needs_capstone

SEED = 20231
SP = 0x7FFC_0000_1000
C = """C = '''
typedef struct {
    int seed;
    int rows;
    void (*progress)(float);
    float *data;
} params;
'''
"""
CLASS = """import ctypes
class Params(ctypes.Structure):
    _fields_ = [{}]
class Layer:
    def __init__(self, seed=20231):
        self.params = Params(rows=8, seed=seed)
    def forward(self, library):
        library.linear(ctypes.byref(self.params))
Layer().forward(load())
"""
INT, POINTER = "ctypes.c_int", "ctypes.c_void_p"
RIGHT = f"('seed', {INT}), ('rows', {INT}), ('progress', {POINTER}), ('data', {POINTER})"
MOVED = f"('rows', {INT}), ('low', {INT}), ('seed', {INT}), ('progress', {POINTER}), ('data', {POINTER})"
WIDE = f"('rows', ctypes.c_long), ('progress', {POINTER}), ('seed', {INT}), ('data', {POINTER})"
MISSING_C = f"('rows', {INT}), ('seed', {INT})"


def crashed(run: Path, source: str, value: int = SEED, *, called: bool = True, frames: Any = None) -> Report:
    file = run / "layer.py"
    file.write_text(source, encoding="utf-8")
    past = time.time() - 10**9  # before the recorded process began
    os.utime(file, (past, past))
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "library.linear(" in text)
    python = [("Layer.forward", str(file), line), ("<module>", str(file), line + 1)]
    stack = frames if frames is not None else [(s.VICTIM, "linear"), FFI, CTYPES, PYTHON]
    if called:
        pushed = PROGRAM[0] + 0x100
        return died(
            run, addr=value, pc=value, python=python, stack_of=[(None, None), *stack],
            registers={"rip": value, "rsp": SP}, memory=(memory(SP, pushed),),
        )  # fmt: skip
    return died(
        run, addr=value, python=python, stack_of=stack, registers={"rax": value, "rcx": 0}, code_bytes=LOAD
    )  # fmt: skip


def test_a_field_where_c_has_a_function_pointer_is_named_with_both_declarations(run: Path) -> None:
    report = crashed(run, C + CLASS.format(MOVED))
    assert verdict(report) == ("wild-pointer", "likely")
    assert "called the number 20231 (0x4f07) as a function, below linear" in summary(report)
    assert "`seed` of Params (line 10) is where the C struct params (line 2) has the function pointer" in summary(
        report
    )
    assert "in the order of the C struct params (line 2): `seed, rows, progress, data`. C has no `low`." in advice(
        report
    )
    assert "null" not in summary(report) + advice(report)


def test_a_struct_in_a_source_beside_the_program_does_not_hide_that_in_its_text(run: Path) -> None:
    """Another program of the folder has C of its own."""
    (run / "other.c").write_text("struct scan { int first; char *label; };\n", encoding="utf-8")
    report = crashed(run, C + CLASS.format(MOVED))
    assert "`seed` of Params (line 10) is where the C struct params (line 2) has the function pointer" in summary(
        report
    )


def test_the_number_that_was_called_is_told_before_the_first_field_that_lies_elsewhere(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where C's function that reads the fields is known as well."""
    function = "void linear(params *p) { for (int i = 0; i < p->rows; i++) p->progress(p->data[i]); }"
    monkeypatch.setattr(differing_layout, "_function", lambda view: function)
    report = crashed(run, C + CLASS.format(MOVED))
    assert "called the number 20231 (0x4f07) as a function, below linear" in summary(report)
    assert "`seed` of Params" in summary(report)


def test_without_the_c_struct_the_field_with_the_value_is_named(run: Path) -> None:
    report = crashed(run, CLASS.format(MISSING_C))
    assert summary(report).endswith(": that is the value of `seed` of Params (line 2).")
    assert advice(report).startswith("Compare `_fields_` of Params (line 2) with the C struct in the header")


def test_a_number_that_was_read_through_is_the_field_s(run: Path) -> None:
    """Also where it is aligned as an offset from null would be."""
    source = C + CLASS.format(WIDE).replace("20231", "9216")
    report = crashed(run, source, 9216, called=False)
    assert verdict(report) == ("wild-pointer", "likely")
    assert "the number 9216 was used as a pointer: `seed` of Params (line 10)" in summary(report)
    assert "`rows`" not in summary(report)


@pytest.mark.parametrize(("value", "told"), [(SEED << 32 | 8, True), (SEED << 32 | 9, False), (SEED << 33, False)])
def test_two_numbers_may_be_the_halves_of_a_pointer(value: int, told: bool, run: Path) -> None:
    """Each of 4 bytes; only where both are known to have that value."""
    text = C.replace("    int seed;\n    int rows;\n", "").replace("float *data;", "int seed; int rows;")
    report = crashed(run, text + CLASS.format(MISSING_C), value)
    assert (
        "`rows` and `seed` of Params (line 8) are where the C struct params (line 2) has the" in summary(report)
    ) == told


@pytest.mark.parametrize("value", [SEED, 8485])
def test_declarations_that_agree_are_not_blamed(value: int, run: Path) -> None:
    """Whatever the number is, it was not read from such a field."""
    report = crashed(run, C + CLASS.format(RIGHT), value)
    assert f"called the number {value}" in summary(report)
    assert "Params" not in summary(report) and "_fields_" not in advice(report)
    assert advice(report).startswith("Check where linear takes the function pointer from")


def test_a_number_that_is_no_field_s_is_not_told_as_one(run: Path) -> None:
    assert "`seed`" not in summary(crashed(run, C + CLASS.format(MOVED), 8485))


def test_null_that_was_called_stays_null(run: Path) -> None:
    report = crashed(run, C + CLASS.format(MOVED), 0)
    assert verdict(report) == ("null-dereference", "certain")
    assert "Params" not in summary(report)


def test_a_number_that_an_extension_called_is_a_number(run: Path) -> None:
    """Not null plus something: nobody adds to the address of a function."""
    report = crashed(run, CLASS.format(MOVED), 0x1234, frames=[(s.VICTIM, "run"), (LIBC_SO, "qsort"), PYTHON])
    assert verdict(report) == ("wild-pointer", "likely")
    assert "called the number 4660 (0x1234) as a function" in summary(report)
    assert "null" not in summary(report) and "Params" not in summary(report)
