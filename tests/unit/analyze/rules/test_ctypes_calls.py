"""C functions that ctypes calls with arguments that do not fit: a small number where they have a pointer."""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.snapshot import HeldNumber, Holder, PythonFrame
from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import advice, died, image, summary, verdict
from tests.support.synth import Box

pytestmark = needs_capstone

LOAD = bytes.fromhex("8b0408")  # mov eax, dword ptr [rax + rcx]
FFI = ("/usr/lib/libffi.so.8", "ffi_call")
CTYPES = ("/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so", "_ctypes_callproc")
PYTHON = (s.PYTHON, "_PyEval_EvalFrameDefault")
BY_CTYPES = [(s.VICTIM, "sample"), FFI, CTYPES, PYTHON]
STRUCT = "import ctypes\n\n\nclass Params(ctypes.Structure):\n    _fields_ = []\n\n\n"
CALL = "def draw(library, n):\n    library.sample(ctypes.byref(Params()), n)\n"
WITHOUT = "import ctypes\n\n\nclass Params:\n    fields = []\n\n\n"


def crashed(run: Path, value: int = 499, source: str = STRUCT + CALL, **how: Any) -> Report:
    file = run / "draw.py"
    file.write_text(source, encoding="utf-8")
    past = time.time() - 10**9  # before the recorded process began
    os.utime(file, (past, past))
    numbers = tuple(
        HeldNumber(name, number, PythonFrame("draw", str(file), 9), 0)
        for name, number in how.pop("numbers", {}).items()
    )
    how = {
        "stack_of": BY_CTYPES, "python": [("draw", str(file), 9)], "registers": {"rax": value, "rcx": 0},
        "code_bytes": LOAD, "numbers": numbers, **how,
    }  # fmt: skip
    return died(run, addr=value, **how)


def test_a_number_where_c_has_a_pointer_means_declarations_that_differ(run: Path) -> None:
    """The structure is named with its line; nothing is said of overwritten pointers."""
    report = crashed(run)
    assert verdict(report) == ("wild-pointer", "likely")
    assert summary(report) == (
        "Process 101 (train.py) read memory through a wild pointer, 0x1f3, in sample, at draw.py:9 in draw: the number "
        "499 was used as a pointer."
    )
    assert advice(report).startswith(
        "Compare the fields of `Params` (line 4) with the C struct, and the argtypes of sample() with its C declaration"
    )
    assert "overwritten" not in advice(report) and "--guard" not in advice(report)


def test_without_a_structure_the_arguments_are_compared(run: Path) -> None:
    report = crashed(run, source=WITHOUT + CALL)
    assert advice(report).startswith("Compare the arguments of sample() at line 9, its argtypes and the fields of each")


def test_the_argument_with_that_value_is_named(run: Path) -> None:
    """`n` stands where the function has a pointer."""
    report = crashed(run, 499, numbers={"n": 499})
    assert "`n` = 499 was used as a pointer" in advice(report)
    assert "`n` = 499 was used" not in advice(crashed(run, 502, numbers={"n": 499}))


@pytest.mark.parametrize(
    "how",
    [
        {"stack_of": [(s.VICTIM, "sample"), PYTHON]},  # an extension
        {"stack_of": [(s.TORCH_CPU, "at::native::f(at::Tensor const&)"), *BY_CTYPES]},  # torch, called by the library
        {"registers": {"rax": 0x7FFF_1234_5678_0001, "rcx": 0}, "addr_of_crash": 0x7FFF_1234_5678_0001},
        {"registers": {"rax": 0, "rcx": 0}, "addr_of_crash": 0},
        {"addr_of_crash": 0x1F1},  # what the heap keeps before a block of 496 bytes
    ],
    ids=["an extension", "below the library", "no small number", "null", "size of a block"],
)
def test_other_pointers_do_not_mean_that(how: dict[str, Any], run: Path) -> None:
    value = how.pop("addr_of_crash", 499)
    more: dict[str, Any] = {} if value < 1 << 47 else {"code": 128}
    report = crashed(run, value, **more, **how)
    assert "was used as a pointer" not in summary(report)
    assert "the C struct" not in advice(report) and "argtypes" not in advice(report)


HANDLE = """import ctypes


class Index:
    def __init__(self, lib):
        self.handle = {}

    def draw(self, library):
        library.sample(self.handle)
{}
"""


@pytest.mark.parametrize(
    ("made", "below", "says"),
    [
        ("lib.create(4)", "", "Set `lib.create.restype = ctypes.c_void_p` before line 6 (`self.handle = lib.c"),
        ("lib.create(4)", "\nlib.create.restype = ctypes.c_void_p", None),
        ("lib.create(4)", "\nsetattr(lib.create, 'restype', ctypes.c_void_p)", None),
        ("find()", "", "Look where `self.handle`, which line 9 passes, was made: where a C function returned it"),
    ],
    ids=["no restype", "with restype", "by setattr", "not known"],
)
def test_an_address_that_was_cut_to_32_bits_names_the_function_that_returned_it(
    made: str, below: str, says: str | None, run: Path
) -> None:
    """It is in an attribute that the line passes; it is no overwritten pointer, whatever number its bits are."""
    value = 0x3CE3_0EA0
    numbers: dict[str, Any] = {"numbers": {"self.handle": value}, "registers": {"rax": value, "rcx": 8}}
    report = crashed(run, value + 8, HANDLE.format(made, below), **numbers)
    cut = "the number 1021513376 of `self.handle` was used as a pointer" in summary(report)
    assert cut == (says is not None)
    assert advice(report).startswith(says) if says is not None else "restype" not in advice(report)
    assert ("lower 32 bits of the address that `lib.create()` returned at line 6: its restype" in summary(report)) == (
        says is not None and "lib.create" in says
    )
    assert says is None or ("float32" not in summary(report) and verdict(report) == ("wild-pointer", "likely"))


@pytest.mark.parametrize(("below", "is_asked"), [("", True), ("\nlib.sample.argtypes = [ctypes.c_void_p]", False)])
def test_argtypes_are_asked_for_where_they_are_not_set(below: str, is_asked: bool, run: Path) -> None:
    """With them, ctypes passes what it kept in 64 bits."""
    numbers: dict[str, Any] = {"numbers": {"self.handle": 0x3CE3_0EA0}, "registers": {"rax": 0x3CE3_0EA0, "rcx": 8}}
    report = crashed(run, 0x3CE3_0EA8, HANDLE.format("lib.create(4)", below), **numbers)
    assert ("or set the argtypes" in advice(report)) == is_asked


@pytest.mark.parametrize(
    ("call", "below", "says"),
    [
        ("library.sample(out.data_ptr(), 4)", "", "Set `library.sample.argtypes = [ctypes.c_void_p, ...]` where the"),
        ("library.sample(out.ctypes.data + 8, 4)", "", "Set `library.sample.argtypes = [ctypes.c_void_p, ...]` where"),
        ("library.sample(out.data_ptr(), 4)", "lib.sample.argtypes = [c_void_p]\n", "Pass the address in 64 bits"),
        ("library.sample(ptr(out), 4)", "", "Pass the address in 64 bits at line 9"),
    ],
)
def test_a_tensor_s_address_that_was_cut_asks_for_argtypes(call: str, below: str, says: str, run: Path) -> None:
    base = 0x5581_3CE3_0EC0
    source = f"import ctypes\n\n\n\n\n\n\ndef draw(library, out):\n    {call}\n\n{below}"
    how: dict[str, Any] = {"box": Box(pid=101).alloc(base, 4096), "registers": {"rax": base % (1 << 32), "rcx": 0}}
    assert advice(crashed(run, base % (1 << 32), source, **how)).startswith(says)


def test_a_number_that_no_register_held_is_no_cut_address(run: Path) -> None:
    """The look-alike: the pointer is another one."""
    numbers: dict[str, Any] = {"numbers": {"self.handle": 0x3CE3_0EA0}, "registers": {"rax": 0x4CE3_0EA0, "rcx": 8}}
    report = crashed(run, 0x4CE3_0EA8, HANDLE.format("lib.create(4)", ""), **numbers)
    assert "was used as a pointer" not in summary(report)


def test_a_pointer_that_holds_numbers_suspects_the_programs_own_call(run: Path) -> None:
    """It was overwritten before, by the library that the program brought; where that is running itself, nobody else."""
    value = struct.unpack("<Q", struct.pack("<ff", 0.25, 0.75))[0]
    source = "import ctypes\nlib = ctypes.CDLL(p)\n\nlib.fill(x.ctypes.data, 3)\n\n\n\n\nstep(y)\n"
    torch = [(s.TORCH_CPU, "at::native::empty_strided_cpu(c10::ArrayRef<long>)"), PYTHON]
    how: dict[str, Any] = {"code": 128, "images": (image("/home/user/job/libfill.so"),), "registers": {"rax": value}}
    how["code_bytes"] = bytes.fromhex("488b00")  # mov rax, qword ptr [rax]
    said = advice(crashed(run, 0, source, stack_of=torch, **how))
    assert said.startswith("The pointer holds two float32 numbers, 0.25 and 0.75: native code wrote an array over")
    assert "First suspect is fill() of libfill.so, to which line 4 passes `x`" in said
    assert "First suspect" not in advice(crashed(run, 0, source, **how))


def test_an_index_may_hold_the_numbers_of_an_overwritten_pointer(run: Path) -> None:
    value = struct.unpack("<Q", struct.pack("<ff", 0.25, 0.75))[0]
    registers = {"rax": value, "rcx": 0x5581_0000_1000}
    report = crashed(run, 0, code=128, registers=registers, code_bytes=bytes.fromhex("8b0401"))  # [rcx + rax]
    assert "which holds two float32 numbers, 0.25 and 0.75, in its index" in summary(report)


CLOSED = """class Index:
    def nearest(self, query):
        return lib.sample(self.handle, query)

    def close(self):
        lib.{}(self.handle)


index.close()
"""


@pytest.mark.parametrize(
    ("function", "value", "told"),
    [
        ("index_close", 0x7FA7_ED51_2010, True),
        ("index_size", 0x7FA7_ED51_2010, False),
        ("index_close", 0x1000_0000, False),
    ],
    ids=["closed", "nothing frees", "another number"],
)
def test_an_object_that_was_given_back_is_told_by_the_number_that_the_line_passes(
    function: str, value: int, told: bool, run: Path
) -> None:
    file = str(run / "draw.py")
    addr = 0x7FA7_ED51_2010
    numbers = (HeldNumber("self.handle", value, PythonFrame("Index.nearest", file, 3), 0),)
    source = CLOSED.format(function)
    (run / "draw.py").write_text(source, encoding="utf-8")
    os.utime(run / "draw.py", (0, 0))
    report = died(
        run, addr=addr, stack_of=BY_CTYPES, python=[("Index.nearest", file, 3)], registers={"rax": addr, "rcx": 0},
        code_bytes=LOAD, numbers=numbers,
    )  # fmt: skip
    assert ("the address is what `self.handle` holds" in summary(report)) == told
    said = "`self.handle`, which line 3 passes, may have been freed before, by Index.close() (line 6: `lib.index_close("
    assert advice(report).startswith(said) == told
    assert ("which line 9 calls: use no Index behind that" in advice(report)) == told


@pytest.mark.parametrize(
    ("call", "elements", "named"),
    [
        ("library.sample(track.data_ptr(), n)", 0, True),
        ("library.sample(other.data_ptr(), track)", 0, True),
        ("track.x, library.sample(other.data_ptr(), n)", 0, False),  # on the line, but not passed
        ("library.sample(track.data_ptr(), None)", 0, False),  # another null pointer
        ("library.sample(track.data_ptr(), n)", 12, False),  # resized to 0: of its memory nothing is known here
    ],
)
def test_an_empty_tensor_that_is_passed_is_the_null_pointer(call: str, elements: int, named: bool, run: Path) -> None:
    source = f"{STRUCT}def draw(library, n, track, other):\n    {call}\n"
    track = Holder("local", "track", 0, PythonFrame("draw", str(run / "draw.py"), 9), True, elements=elements)
    report = crashed(run, 0, source, registers={"rax": 0, "rcx": 0}, holders=(track,))
    assert verdict(report)[0] == "null-dereference"
    assert ("`track` in draw() has 0 elements" in summary(report)) == named
    assert ("Check the size of `track` before line 9" in advice(report)) == named
    assert "Line 9 passes `library`" not in advice(report)


@pytest.mark.parametrize("declared", [True, False])
def test_argtypes_are_asked_for_only_where_no_line_sets_them(declared: bool, run: Path) -> None:
    value = 0x3CE3_0EA0
    below = "\nlib.sample.argtypes = [ctypes.c_void_p]" if declared else "\nlib.other.argtypes = [ctypes.c_void_p]"
    numbers: dict[str, Any] = {"numbers": {"self.handle": value}, "registers": {"rax": value, "rcx": 8}}
    report = crashed(run, value + 8, HANDLE.format("lib.create(4)", below), **numbers)
    assert ("or set the argtypes" not in advice(report)) == declared
