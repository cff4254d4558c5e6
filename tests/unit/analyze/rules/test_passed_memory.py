"""Memory that a line passes to C by its address: not in a row, not aligned, a temporary's; and what only looks so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.snapshot import Argument, HeldArray, Holder, PythonFrame
from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, summary, verdict
from tests.support.synth import Box

pytestmark = needs_capstone

BASE, NBYTES = 0x5581_0000_1000, 0x1_0000
ARENA = (BASE - 0x1000, BASE + 0x10_0000, "rw-p", 0, "[heap]")
LOAD = bytes.fromhex("8b0408")  # mov eax, dword ptr [rax + rcx]
ALIGNED = bytes.fromhex("c5fc2807")  # vmovaps ymm0, ymmword ptr [rdi]
FFI = ("/usr/lib/libffi.so.8", "ffi_call")
CTYPES = ("/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so", "_ctypes_callproc")
PYTHON = (s.PYTHON, "_PyEval_EvalFrameDefault")
BY_CTYPES = [(s.VICTIM, "mix"), FFI, CTYPES, PYTHON]
SOURCE = """import ctypes


def mix(x, n):
    {}
    lib.mix(ctypes.c_void_p(x.{}), n)


{}
"""


def tensor(sizes: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Argument:
    elements = 1
    for size in sizes:
        elements *= size
    return Argument(
        0x10, BASE, elements, offset, sizes, len(sizes), "float32", "cpu", None, None, None, None, None, "held",
        strides=strides,
    )  # fmt: skip


def crashed(
    run: Path, *, line: str = "pass", last: str = "mix(y, 3)", pointer: str = "data_ptr()",
    item: Argument | None = None, **how: Any,
) -> Report:  # fmt: skip
    file = run / "mix.py"
    file.write_text(SOURCE.format(line, pointer, last), encoding="utf-8")
    os.utime(file, (0, 0))  # before the recorded process began
    at = PythonFrame("mix", str(file), 6)
    held = (Holder("local", "x", BASE, at, True, elements=item.elements),) if item is not None else ()
    how = {
        "addr": ARENA[1], "registers": {"rax": ARENA[1], "rcx": 0, "rdi": ARENA[1]}, "code_bytes": LOAD,
        "holders": held, "stack_of": BY_CTYPES, "python": [("mix", str(file), 6), ("<module>", str(file), 9)],
        "mappings": [PROGRAM, ARENA], "arguments": (item,) if item is not None else (), **how,
    }  # fmt: skip
    return died(run, box=Box(pid=101).alloc(BASE, NBYTES), **how)


# ---- in a row


@pytest.mark.parametrize(
    ("sizes", "strides", "says"),
    [
        (
            (4, 100),
            (0, 1),
            "`x` [4, 100] is expanded: 400 bytes of memory lie behind it, and in a row its elements wou",
        ),
        ((4, 100), (1, 4), "`x` [4, 100] has the strides (1, 4), so its elements are not in a row"),
        ((4, 50), (100, 2), "`x` [4, 50] has the strides (100, 2), so its elements are not in a row"),
        ((4, 100), (100, 1), None),
        ((4, 1, 100), (100, 7, 1), None),
        ((1, 100), (0, 1), None),
        ((0, 3), (0, 0), None),
    ],
    ids=["expanded", "transposed", "steps", "in a row", "one that does not count", "one row", "no rows"],
)
def test_a_tensor_that_is_not_in_a_row_is_named(
    sizes: tuple[int, ...], strides: tuple[int, ...], says: str | None, run: Path
) -> None:
    said = advice(crashed(run, item=tensor(sizes, strides)))
    assert said.startswith(says) if says is not None else "in a row" not in said
    assert ("keep `x.contiguous()` in a variable" in said) == (says is not None)


def test_strides_that_c_is_given_as_well_are_no_mistake(run: Path) -> None:
    said = advice(crashed(run, item=tensor((4, 100), (1, 4)), pointer="data_ptr()), x.stride(0"))
    assert "in a row" not in said


def test_without_ctypes_nothing_is_said(run: Path) -> None:
    """The look-alike: torch's operators know strides."""
    said = advice(crashed(run, item=tensor((4, 100), (0, 1)), stack_of=[(s.TORCH_CPU, "at::native::f()"), PYTHON]))
    assert "expanded" not in said


@pytest.mark.parametrize(
    ("line", "last", "says"),
    [
        ("x = x[::-1]", "mix(y, 3)", "`x` may be flipped (line 5: `x = x[::-1]`)"),
        ("x = np.flipud(x)", "mix(y, 3)", "`x` may be flipped (line 5: `x = np.flipud(x)`)"),
        ("x = x if n else x.T", "mix(y, 3)", "`x` may be transposed (line 5: "),
        ("pass", "mix(y[:, ::2], 3)", "`x` may be taken in steps or columns (line 9: `mix(y[:, ::2], 3)`)"),
        ("x = np.ascontiguousarray(x)", "mix(y[::-1], 3)", None),
        ("x = x[::-1].copy()", "mix(y, 3)", None),
        ("x = torch.flip(x, (0,))", "mix(y, 3)", None),
        ("x = x[2:]", "mix(y, 3)", None),
        ("x = x[:, None]", "mix(y, 3)", None),
        ("z = x[::-1]", "mix(y, 3)", None),
    ],
    ids=["step", "flipud", "a branch", "the caller", "made whole", "copied", "torch copies", "from", "axis", "another"],
)
def test_an_array_that_may_be_a_view_is_named_with_its_line(line: str, last: str, says: str | None, run: Path) -> None:
    said = advice(crashed(run, line=line, last=last, pointer="ctypes.data"))
    assert said.startswith(says) if says is not None else " may be " not in said
    assert ("keep `np.ascontiguousarray(x)` in a variable" in said) == (says is not None)


@pytest.mark.parametrize(
    ("passed", "named"),
    [
        ("x.astype(np.float32).ctypes.data", True),
        ("x.clone().data_ptr()", True),
        ("x.astype(np.float32, copy=False).ctypes.data", False),
        ("x.astype(np.float32).ctypes.data_as(P)", False),
        ("x.contiguous().data_ptr()", False),
        ("x.ctypes.data", False),
    ],
)
def test_a_temporary_whose_address_is_taken_is_named(passed: str, named: bool, run: Path) -> None:
    """NumPy keeps the array with data_as(), and contiguous() may make none."""
    said = advice(crashed(run, last=f"lib.open({passed})"))
    assert ("a temporary that nothing keeps" in said) == named
    assert said.startswith("Line 9 takes the address of `x.") == named


# ---- aligned


def misaligned(run: Path, addr: int, **how: Any) -> Report:
    code: dict[str, Any] = {"code": 128, "code_bytes": ALIGNED, "registers": {"rdi": addr}}
    report = crashed(run, addr=0, **code, **how)
    assert verdict(report) == ("misaligned-access", "certain")
    return report


def test_a_row_that_is_not_aligned_is_named_with_the_width(run: Path) -> None:
    report = misaligned(run, BASE + 400, item=tensor((16, 100), (100, 1)))
    assert "read row 1 of `x` [16, 100] float32 in mix by an instruction for addresses that are multiples of 32" in (
        summary(report)
    )
    assert "its rows are 400 bytes apart, which is none" in summary(report)
    assert advice(report).startswith(
        "Use unaligned loads and stores in mix (_mm256_loadu_ps and the like): rows of 400"
    )


def test_a_view_that_begins_between_is_named_with_its_offset(run: Path) -> None:
    report = misaligned(run, BASE + 8, item=tensor((16, 128), (128, 1), offset=2))
    assert "`x` [16, 128] float32, which begins 8 bytes into its storage, in mix" in summary(report)
    assert "or pass `x.clone()`, which begins at a multiple of 64" in advice(report)


def test_an_array_over_a_buffer_is_named_with_its_line(run: Path) -> None:
    report = misaligned(
        run,
        BASE + 8,
        line="x = np.frombuffer(x, np.float32, offset=8)",
        pointer="ctypes.data",
        mappings=[PROGRAM, ARENA],
    )
    assert "8 bytes behind one" in summary(report)
    assert "`x` may begin in the middle of other memory (line 5: `x = np.frombuffer(" in advice(report)
    assert "may begin in the middle" not in advice(misaligned(run, BASE + 8, pointer="ctypes.data"))


def test_an_aligned_address_is_no_misaligned_access(run: Path) -> None:
    """The look-alike: refused for another reason, such as an address that no process can have."""
    registers = {"rdi": 0x7FFF_1234_5678_0000}
    report = crashed(run, addr=0, code=128, code_bytes=ALIGNED, registers=registers)
    assert verdict(report)[0] != "misaligned-access"


def test_a_callback_is_no_suspect_where_c_called_none(run: Path) -> None:
    """The fault is in the native function itself."""
    said = advice(crashed(run, last="CB = ctypes.CFUNCTYPE(None)\nlib.register(CB(report))"))
    assert "CB(report)" not in said


def test_memory_whose_address_alone_a_struct_has_is_named(run: Path) -> None:
    """Of another line of the program; one that is held as well is no suspect."""
    last = "batch = ffi.new('batch_t *')\nbatch.rows = ffi.new('row_t[]', 4)"
    report = crashed(run, last=last)
    assert advice(report).startswith("Hold `ffi.new('row_t[]', 4)` (mix.py:10) in a variable or attribute as well")
    held = crashed(run, last=last.replace("batch.rows = ", "rows = batch.rows = "))
    assert "Hold" not in advice(held)


# ---- arrays that were recorded


def array(run: Path, shape: tuple[int, ...], strides: tuple[int, ...], data: int = BASE) -> dict[str, Any]:
    at = PythonFrame("mix", str(run / "mix.py"), 6)
    return {"arrays": (HeldArray("x", data, "float32", shape, strides, at, 0),), "pointer": "ctypes.data"}


@pytest.mark.parametrize(
    ("shape", "strides", "says"),
    [
        (
            (40, 30),
            (-120, 4),
            "`x` [40, 30] float32 has strides of (-120, 4) bytes: it is flipped, and its address is near",
        ),
        ((40, 30), (4, 160), "`x` [40, 30] float32 has strides of (4, 160) bytes, so its elements are not in a row"),
        ((40, 30), (120, 4), None),
    ],
    ids=["flipped", "transposed", "in a row"],
)
def test_a_recorded_array_that_is_not_in_a_row_is_named(
    shape: tuple[int, ...], strides: tuple[int, ...], says: str | None, run: Path
) -> None:
    """One that is in a row is no view with gaps, whatever the source would allow."""
    said = advice(crashed(run, line="x = x[::-1]", **array(run, shape, strides)))
    assert said.startswith(says) if says is not None else "flipped" not in said and "in a row" not in said
    assert ("(line 5: `x = x[::-1]`). Where C is given no strides" in said) == (says is not None)


@pytest.mark.parametrize("made", ["np.zeros((40, 30), order='F')", "np.empty_like(other)"])
def test_a_new_array_in_another_order_is_no_view_with_gaps(made: str, run: Path) -> None:
    """It has memory for all its elements, and nothing in it yet that could be an index."""
    assert "not in a row" not in advice(crashed(run, line=f"x = {made}", **array(run, (40, 30), (4, 160))))
    assert "not in a row" in advice(crashed(run, line=f"x = {made}", **array(run, (40, 30), (8, 320))))


def test_a_loop_that_left_the_only_array_before_the_fault_names_it(run: Path) -> None:
    """The look-alike lies behind the fault."""
    end = ARENA[1]
    ran: dict[str, Any] = {"addr": end, "registers": {"rax": end, "rcx": 0}}
    before = crashed(run, **array(run, (40, 30), (120, 4), end - 8000), **ran)
    assert "perhaps past the end of `x` [40, 30] float32" in summary(before)
    behind = crashed(run, **array(run, (40, 30), (120, 4), end + 8000), **ran)
    assert "past the end of `x`" not in summary(behind)


def test_array_whose_first_byte_and_element_are_in_registers_was_left(run: Path) -> None:
    """What lies between does not matter then; of memory below the address alone it is but perhaps so."""
    end = ARENA[1]
    ran: dict[str, Any] = {"addr": end, "registers": {"rax": end, "rcx": 0, "rdx": 2000, "rsi": end - 8000}}
    report = crashed(run, **array(run, (40,), (4,), end - 8000), **ran)
    assert "read past the end of `x` [40] float32 in mix" in summary(report)
    assert verdict(report) == ("out-of-bounds", "likely")


def test_an_array_that_is_not_aligned_is_named(run: Path) -> None:
    report = misaligned(run, BASE + 8, **array(run, (64,), (4,), BASE + 8))
    assert "read `x` [64] float32 in mix by an instruction for addresses that are multiples of 32" in summary(report)
