"""Stack smashing names the local arrays, and what the line passes that may be too much; and two indices read as one."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.journal import CppException
from pytracer.decode.types.snapshot import Argument, Holder, NativeFrame, PythonFrame, SourceLine
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import LIBC_SO, STDCPP, advice, died, verdict
from tests.support.synth import Box

BASE, TABLE = 0x5581_0000_1000, 0x5581_0010_0000
SMASHED: dict[str, Any] = {
    "signal": 6, "code": -6, "sender_pid": 101, "abort_text": "*** stack smashing detected ***: terminated\n",
}  # fmt: skip
CALLS = """import ctypes
lib = ctypes.CDLL(p)
lib.load({})
"""


def tensor(
    base: int, sizes: tuple[int, ...], dtype: str = "float32", values: tuple[int, int] | None = None
) -> Argument:
    steps: list[int] = []
    elements = 1
    for size in reversed(sizes):
        steps.insert(0, elements)
        elements *= size
    return Argument(
        0x10, base, elements, 0, sizes, len(sizes), dtype, "cpu", values and values[0], values and values[1], None,
        None, None, "held", strides=tuple(steps),
    )  # fmt: skip


def crashed(run: Path, passes: str, *tensors: tuple[str, Argument], **how: Any) -> Any:
    file = run / "train.py"
    file.write_text(CALLS.format(passes), encoding="utf-8")
    os.utime(file, (0, 0))  # before the recorded process began
    at = PythonFrame("<module>", str(file), 3)
    holders = tuple(Holder("global", name, item.base, at, True, elements=item.elements) for name, item in tensors)
    box = Box(pid=101).alloc(BASE, 4096).alloc(TABLE, 5000 * 48 * 4)
    how = {
        "python": [("<module>", str(file), 3)], "holders": holders,
        "arguments": tuple(item for _, item in tensors), **how,
    }  # fmt: skip
    return died(run, box=box, **how)


@pytest.mark.parametrize(
    ("array", "passes", "says"),
    [
        (
            "char name[96]",
            "folder.encode(), x.data_ptr()",
            "(scans.c:2): the texts that line 3 passes, `folder`, may be",
        ),
        ("char name[96]", "x.data_ptr(), 3", "`char name[96]` (scans.c:2). Check the length"),
        ("double mean[64]", "x.data_ptr(), 3", "(scans.c:2): line 3 passes `x` [128, 8], of more than 64"),
        ("double mean[512]", "x.data_ptr(), 3", "`double mean[512]` (scans.c:2). Check the length"),
        ("double mean", "x.data_ptr(), 3", None),
    ],
    ids=["texts", "no texts", "more", "fewer", "no array"],
)
def test_the_arrays_of_the_function_are_named(array: str, passes: str, says: str | None, run: Path) -> None:
    source, library = run / "scans.c", run / "libscans.so"
    source.write_text(f"void load(const char *f) {{\n    {array};\n    use();\n}}\n", encoding="utf-8")
    library.write_bytes(b"")
    os.utime(source, (1000, 1000))
    names = [(LIBC_SO, "abort"), (LIBC_SO, "__fortify_fail"), (LIBC_SO, "__stack_chk_fail"), (str(library), "load")]
    frames = [NativeFrame(0x7000_0000_0000 + n, *item[:1], n, None, "unwound", item[1]) for n, item in enumerate(names)]
    frames[-1] = replace(frames[-1], lines=(SourceLine("load", str(source), 4),))
    report = crashed(run, passes, ("x", tensor(BASE, (128, 8))), **SMASHED, native_stack=tuple(frames))
    assert verdict(report) == ("abort", "certain")
    assert (
        says in advice(report) if says is not None else advice(report).startswith("Look at load: it, or what it called")
    )


MUL = bytes.fromhex("f30f100497")  # movss xmm0, dword ptr [rdi + rdx*4]


@needs_capstone
@pytest.mark.parametrize(
    ("low", "high", "named"),
    [(722, 1797, True), (722, 5000, False), (6000, 1797, False)],
    ids=["both are rows", "the upper half is none", "the lower half is none"],
)
def test_two_indices_that_were_read_as_one_are_told_by_their_halves(
    low: int, high: int, named: bool, run: Path
) -> None:
    number = (low + (high << 32)) * 48
    registers = {"rdi": TABLE, "rdx": number}
    report = crashed(
        run, "table.data_ptr(), ids.ctypes.data, 3", ("table", tensor(TABLE, (5000, 48))), addr=0, code=128,
        registers=registers, code_bytes=MUL, stack_of=[(s.VICTIM, "bag"), (s.PYTHON, "_PyEval_EvalFrameDefault")],
    )  # fmt: skip
    words = f"Check the type of `ids`, which line 3 passes: the index {low + (high << 32)} is {low} + {high} * 2**32"
    assert (words in advice(report)) == named
    assert named or "2**32" not in advice(report)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("vector::_M_range_check: __n (which is 256) >= this->size() (which is 256)", "The index 256 is outside of a "),
        (
            "vector::_M_range_check: __n (which is 9) >= this->size() (which is 4)",
            "The index 9 is outside of a container",
        ),
        ("map::at", None),
    ],
    ids=["in a tensor", "in none", "another check"],
)
def test_an_index_that_a_container_refused_is_looked_for_in_the_line(what: str, says: str | None, run: Path) -> None:
    stack = [(LIBC_SO, "abort"), (STDCPP, "std::terminate()"), (STDCPP, "__cxa_throw"), (s.VICTIM, "decode")]
    report = crashed(
        run, "codes.data_ptr(), 3", ("codes", tensor(BASE, (4, 8), "int64", (0, 256))), signal=6, code=-6,
        sender_pid=101, stack_of=stack, cpp_exceptions=[CppException(tid=101, type="std::out_of_range", what=what)],
    )  # fmt: skip
    assert says in advice(report) if says is not None else "container" not in advice(report)
    assert ("`codes` [4, 8] has values from 0 to 256, which line 3 passes" in advice(report)) == ("256" in what)


@pytest.mark.parametrize("by_ctypes", [True, False])
def test_an_exception_that_left_c_code_of_ctypes_is_to_be_caught_there(by_ctypes: bool, run: Path) -> None:
    """The look-alike left a thread of the library."""
    ffi = [
        ("/usr/lib/libffi.so.8", "ffi_call"),
        ("/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so", "_ctypes_callproc"),
        (s.PYTHON, "_PyEval_EvalFrameDefault"),
    ]
    stack = [(LIBC_SO, "abort"), (STDCPP, "std::terminate()"), (STDCPP, "__cxa_throw"), (s.VICTIM, "read_block")]
    report = crashed(
        run, "path", signal=6, code=-6, sender_pid=101, stack_of=[*stack, *(ffi if by_ctypes else ())],
        cpp_exceptions=[CppException(tid=101, type="std::runtime_error", what="short read")],
    )  # fmt: skip
    caught = "ctypes cannot hand exceptions on: catch them in the function that it calls" in advice(report)
    assert caught == by_ctypes
