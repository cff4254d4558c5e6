"""An address that the program holds whole, and of which C got 32 bits: no argtypes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytracer._text import capital
from pytracer.decode.types.snapshot import HeldNumber, PythonFrame
from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, summary, verdict

pytestmark = needs_capstone

LOAD = bytes.fromhex("8b0408")  # mov eax, dword ptr [rax + rcx]
PYTHON = (s.PYTHON, "_PyEval_EvalFrameDefault")
BY_CTYPES = [
    (s.VICTIM, "sample"), ("/usr/lib/libffi.so.8", "ffi_call"), ("/usr/lib/_ctypes.cpython-311.so", "_call"), PYTHON,
]  # fmt: skip
BY_CFFI = [BY_CTYPES[0], BY_CTYPES[1], ("/usr/lib/_cffi_backend.cpython-311.so", "cdata_call"), PYTHON]
HEAP = (0x55A4_0000_0000, 0x55A4_FFFF_0000, "rw-p", 0, "[heap]")
WHOLE, CUT = 0x55A4_D239_8600, 0xFFFF_FFFF_D239_8600
SOURCE = """import ctypes
lib = ctypes.CDLL("x.so")


class Ring:
    def __init__(self, lib):
        self.lib, self.ptr = lib, lib.ring_make(64)

    def draw(self, ptr, rest):
        {call}


{below}
"""
HEADLINE = "the lower 32 bits of the address that `lib.ring_make()` returned"
UNSET = "has no argtypes, so that ctypes passes an int as a C int"


def crashed(run: Path, call: str, below: str = "", **how: Any) -> Report:
    file = run / "ring.py"
    file.write_text(SOURCE.format(call=call, below=below), encoding="utf-8")
    os.utime(file, (0, 0))
    line = 9 + len(call.splitlines())
    frame = PythonFrame("Ring.draw", str(file), line)
    held = how.pop("numbers", {"self.ptr": WHOLE})
    addr = how.pop("addr", CUT)
    numbers = tuple(HeldNumber(name, value, frame, 0) for name, value in held.items())
    how = {
        "stack_of": BY_CTYPES, "python": [("Ring.draw", str(file), line)], "registers": {"rax": addr, "rcx": 0},
        "code_bytes": LOAD, "mappings": [PROGRAM, HEAP], "numbers": numbers, **how,
    }  # fmt: skip
    return died(run, addr=addr, **how)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        ("self.lib.sample(self.ptr, 4)", "`self.lib.sample`"),
        ("func = self.lib.sample\n        func(self.ptr, *rest)", "`func` (sample)"),
        ("func = getattr(self.lib, 'sample')\n        func(self.ptr)", "`func` (sample)"),
    ],
    ids=["method", "in a variable", "by getattr"],
)
def test_a_function_without_argtypes_cuts_the_address_that_another_one_returned(
    call: str, named: str, run: Path
) -> None:
    report = crashed(run, call)
    assert verdict(report) == ("wild-pointer", "likely")
    assert f"{HEADLINE}: {named} {UNSET}." in summary(report)
    assert "`ctypes.c_void_p(self.ptr)` there" in advice(report)


def test_the_upper_half_may_be_zero_and_the_instruction_may_read_behind_it(run: Path) -> None:
    report = crashed(run, "self.lib.sample(self.ptr)", addr=0x5239_8608, numbers={"self.ptr": 0x55A4_5239_8600},
                     registers={"rax": 0x5239_8600, "rcx": 8})  # fmt: skip
    assert HEADLINE in summary(report)


OTHERS = """
PROTOTYPES = {{"ring_make": (ctypes.c_void_p, []), {more} "ring_free": (None, [ctypes.c_void_p])}}
for name, (restype, argtypes) in PROTOTYPES.items():
    getattr(lib, name).restype, getattr(lib, name).argtypes = restype, argtypes
"""
BY_HELPER = """
def declare(name, argtypes):
    f = getattr(lib, name)
    f.argtypes = argtypes
declare("ring_make", [])
declare("{}", [ctypes.c_void_p])
"""


@pytest.mark.parametrize(
    ("below", "unset"),
    [
        (OTHERS.format(more=""), True),
        (OTHERS.format(more='"sample": (None, [ctypes.c_void_p]),'), False),
        (OTHERS.format(more="") + "PROTOTYPES['sample'] = (None, [])\n", False),
        (BY_HELPER.format("ring_free"), True),
        (BY_HELPER.format("sample"), False),
        ("for name in NAMES:\n    getattr(lib, name).argtypes = [ctypes.c_void_p]\n", False),
        ("for f in (lib.ring_make, lib.ring_free):\n    f.argtypes = [ctypes.c_void_p]\n", True),
        ("for f in (lib.ring_make, lib.sample):\n    f.argtypes = [ctypes.c_void_p]\n", False),
        ("for name in 'ring_make ring_free'.split():\n    getattr(lib, name).argtypes = []\n", True),
        ("lib.sample.argtypes = [ctypes.c_void_p]\n", False),
    ],
)
def test_argtypes_are_missed_only_where_no_line_may_set_them(below: str, unset: bool, run: Path) -> None:
    """The lower half is that of the number either way; where the argtypes may be set, C may have cut it."""
    report = crashed(run, "self.lib.sample(self.ptr)", below)
    assert HEADLINE in summary(report)
    assert (UNSET in summary(report)) == unset
    assert advice(report).startswith("Set `self.lib.sample.argtypes") == unset


WIDE = (
    "line {} declares `self.ptr` as ctypes.c_void_p, so that ctypes passes all 64 bits: it is cut in C: look for int, "
    "int32_t, or a missing prototype in sample(). `self.ptr` itself is whole: "
)
PROTOTYPE = "sample = ctypes.CFUNCTYPE(None, {})(('sample', lib))\n"


@pytest.mark.parametrize(
    ("call", "below", "line"),
    [
        ("self.lib.sample(self.ptr)", "lib.sample.argtypes = [ctypes.c_void_p]\n", 13),
        ("sample(self.ptr)", PROTOTYPE.format("ctypes.c_void_p"), 13),
        ("sample(self.ptr)", "kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)\nsample = kind(('sample', lib))\n", 13),
    ],
    ids=["argtypes", "a prototype", "a prototype in a variable"],
)
def test_address_that_is_declared_with_64_bits_is_cut_in_c(call: str, below: str, line: int, run: Path) -> None:
    report = crashed(run, call, below)
    assert HEADLINE in summary(report) and UNSET not in summary(report)
    assert advice(report).startswith(capital(WIDE.format(line)))


@pytest.mark.parametrize(
    ("call", "below"),
    [
        (
            "self.lib.sample(self.ptr)",
            "lib.sample.argtypes = [ctypes.c_void_p]\nlib.sample.argtypes = [ctypes.c_int]\n",
        ),
        ("self.lib.sample(self.ptr)", "lib.sample.argtypes = [KIND]\n"),
        ("sample(self.ptr)", PROTOTYPE.format("ctypes.c_void_p") + "sample = other\n"),
        ("sample(self.ptr)", PROTOTYPE.format("ctypes.c_void_p") + "sample.argtypes = [ctypes.c_int]\n"),
        ("sample(self.ptr)", PROTOTYPE.format("ctypes.c_void_p").replace("'sample'", "'other'")),
    ],
    ids=["twice", "another type", "another function later", "argtypes of it", "another function"],
)
def test_declaration_that_is_not_the_only_one_says_nothing(call: str, below: str, run: Path) -> None:
    """The look-alikes: either may have cut it."""
    report = crashed(run, call, below)
    assert (
        HEADLINE in summary(report) and "it is cut in C" not in advice(report) and "declares it" not in summary(report)
    )


@pytest.mark.parametrize(
    ("call", "below", "says"),
    [
        ("self.lib.sample(ctypes.c_int(self.ptr))", "", "returned: `ctypes.c_int(self.ptr)` has no more"),
        ("self.lib.sample(self.ptr)", "lib.sample.argtypes = [ctypes.c_int]\n", "returned: line 13 declares it as"),
        ("sample(self.ptr)", PROTOTYPE.format("ctypes.c_int"), "returned: line 13 declares it as ctypes.c_int"),
    ],
)
def test_what_makes_a_c_int_of_it_is_named(call: str, below: str, says: str, run: Path) -> None:
    report = crashed(run, call, below)
    assert says in summary(report) and UNSET not in summary(report)


def test_a_number_whose_maker_is_not_known_is_given_as_it_is(run: Path) -> None:
    report = crashed(run, "self.lib.sample(ptr)", numbers={"ptr": WHOLE})
    assert f"the lower 32 bits of `ptr`, 0x55a4d2398600: `self.lib.sample` {UNSET}." in summary(report)


def test_an_unpacked_argument_is_found(run: Path) -> None:
    assert "the lower 32 bits of `rest[0]`" in summary(crashed(run, "lib.sample(*rest)", numbers={"rest[0]": WHOLE}))


@pytest.mark.parametrize(
    ("call", "how"),
    [
        ("self.lib.sample(self.ptr)", {"numbers": {"self.ptr": WHOLE + (1 << 20)}}),
        ("self.lib.sample(ptr, self.lib)", {}),
        ("self.lib.sample(ctypes.c_void_p(self.ptr))", {}),
        ("self.lib.sample(self.ptr)", {"stack_of": BY_CFFI}),
        ("self.lib.sample(self.ptr)", {"stack_of": [(s.VICTIM, "sample"), PYTHON]}),
        ("self.lib.sample(self.ptr)", {"mappings": [PROGRAM]}),
        ("self.lib.sample(self.ptr)", {"numbers": {"self.ptr": (3 << 32) + 0xD239_8600}}),
    ],
    ids=["another number", "not passed", "wrapped", "cffi", "an extension", "no mapping", "no address"],
)
def test_other_wild_pointers_are_no_half_of_an_address_that_is_passed(
    call: str, how: dict[str, Any], run: Path
) -> None:
    report = crashed(run, call, **how)
    assert HEADLINE not in summary(report) and UNSET not in summary(report)
