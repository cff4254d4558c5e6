"""An address outside of a tensor as a row of it: what leads there, and what only looks as if it did."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.evidence.indices import row_words
from pytracer.analyze.evidence.indices.reached_row import ReachedRow
from pytracer.analyze.evidence.operators.operator import OperatorTensor
from pytracer.decode.types.journal import CppException
from pytracer.decode.types.snapshot import (
    Argument,
    HeldNumber,
    Holder,
    MemoryBlock,
    NativeFrame,
    PythonFrame,
    ThreadStack,
)
from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, evidence, summary, verdict
from tests.support.synth import Box

pytestmark = needs_capstone

TABLE, INDEX, OTHER = 0x5581_0000_1000, 0x5581_0010_0000, 0x5581_0018_0000
HEAP = (0x5581_0000_0000, 0x5581_0020_0000, "rw-p", 0, "[heap]")
LOAD = bytes.fromhex("c5fa1002")  # vmovss xmm0, dword ptr [rdx]
STORE = bytes.fromhex("41880408")  # mov byte ptr [r8 + rcx], al
PYTHON = (s.PYTHON, "_PyEval_EvalFrameDefault")
STEP = PythonFrame("step", s.SCRIPT, 41)
OUTER = PythonFrame("main", s.SCRIPT, 90)
ROW = 7_000_123


def frames(name: str) -> list[tuple[str, str]]:
    return [
        (s.TORCH_CPU, f"at::native::{name}_kernel(at::Tensor const&)"),
        (s.TORCH_CPU, f"at::_ops::{name}::call(at::Tensor const&)"),
        (s.TORCH_CPU, f"torch::autograd::THPVariable_{name}(_object*, _object*, _object*)"),
        PYTHON,
    ]


def tensor(base: int, *sizes: int, dtype: str = "float32", **more: Any) -> Argument:
    elements = 1
    for size in sizes:
        elements *= size
    values = {
        "minimum": None, "maximum": None, "register": None, "how": "reference", "frame": 0, "outer_frame": 2, **more,
    }  # fmt: skip
    return Argument(base ^ 0xFF, base, elements, 0, sizes, len(sizes), dtype, "cpu", **values)


def index(lowest: int, highest: int, base: int = INDEX, size: int = 300, **more: Any) -> Argument:
    return tensor(base, size, dtype="int64", minimum=lowest, maximum=highest, **more)


def crashed(run: Path, *arguments: Argument, addr: int, name: str = "sampled", **how: Any) -> Report:
    """In an operator; `table` and `rows` are variables of its line."""
    box = Box(pid=101).alloc(TABLE, 64_000).alloc(INDEX, 2400).alloc(OTHER, 64_000)
    how = {
        "stack_of": frames(name), "python": [("step", s.SCRIPT, 41)], "registers": {"rdx": addr}, "code_bytes": LOAD,
        "holders": (Holder("local", "table", TABLE, STEP, True), Holder("local", "rows", INDEX, STEP, True)),
        "mappings": [PROGRAM, HEAP], **how,
    }  # fmt: skip
    return died(run, box=box, addr=addr, arguments=arguments, **how)


def element(*numbers: int) -> MemoryBlock:
    return MemoryBlock("rcx", INDEX, INDEX, struct.pack(f"<{len(numbers)}q", *numbers))


def test_element_of_an_index_tensor_times_the_bytes_of_a_row_is_the_index(run: Path) -> None:
    """The element lies near what a register points at; rows of 64 bytes are no scale of an instruction."""
    report = crashed(
        run, tensor(TABLE, 1000, 16), index(0, 9_000_000), addr=TABLE + 64 * ROW, memory=(element(5, ROW, 8),)
    )
    assert verdict(report) == ("out-of-bounds", "likely")
    assert summary(report).endswith(f"index {ROW} of `rows` leads out of `table` [1000, 16].")
    assert f"the address is row {ROW} of `table` [1000, 16], which has 1000 rows" in evidence(report)
    assert advice(report).startswith("Check the values of `rows` (0..9000000) before line 41 passes it: `table`")


def test_row_that_the_values_of_the_index_reach_is_likely_where_few_addresses_fit(run: Path) -> None:
    """Nothing of the sum is at hand, only where the tensor begins and how far the values go."""
    report = crashed(run, tensor(TABLE, 1000, 16), index(0, 9_000_000), addr=TABLE + 64 * ROW)
    assert verdict(report) == ("out-of-bounds", "likely")
    assert summary(report).endswith(f"index {ROW}, which `rows` (0..9000000) reaches, leads out of `table` [1000, 16].")


def test_no_dimension_is_named_where_a_row_and_a_column_may_be_wrong(run: Path) -> None:
    """Indices of a sparse tensor [2, n] have one range for both."""
    addr = TABLE - 4 * 98_000_123
    both = tensor(INDEX, 2, 150, dtype="int64", minimum=-99_000_000, maximum=63)
    report = crashed(run, tensor(TABLE, 64, 64), both, addr=addr, registers={"rdx": addr, "rcx": TABLE})
    assert "an index of `rows` (-99000000..63) leads out of `table` [64, 64]" in summary(report)
    assert "before `table` [64, 64]; in which of its dimensions the index is wrong is not known" in evidence(report)
    assert "row -1531252" not in evidence(report)
    found = next(item for item in report.findings or () if item.id == "wrong-index")
    assert found.missing == ["which index it was: the registers held only the address that was computed from it"]


@pytest.mark.parametrize(("lowest", "highest", "told"), [(-99, 15, True), (0, 15, False), (-99, 16, False)])
def test_indices_of_which_none_is_too_large_have_no_lower_bound(lowest: int, highest: int, told: bool) -> None:
    data = OperatorTensor(tensor(TABLE, 1000, 16), "table", None, passed=True)
    item = OperatorTensor(index(lowest, highest), "rows", None, passed=True)
    way = ReachedRow(data, lowest, 1000, 64, exact=True, index=item)
    assert (
        row_words.only_negative(way).startswith(f"No index is too large, but some are negative, down to {lowest}")
        == told
    )


def test_variable_that_the_operator_was_not_given_is_no_index(run: Path) -> None:
    """A word of it is left on the stack of the kernel; the operator's caller does not refer to it."""
    how: dict[str, Any] = {"addr": TABLE + 64 * ROW, "holders": ()}
    holders = (Holder("local", "table", TABLE, STEP, True), Holder("local", "old", INDEX, OUTER, True))
    stale = index(0, 9_000_000, outer_frame=0)
    report = crashed(run, tensor(TABLE, 1000, 16), stale, **{**how, "holders": holders})
    assert "`old`" not in summary(report)
    assert "`old`" not in advice(report)
    given = crashed(run / "given", tensor(TABLE, 1000, 16), index(0, 9_000_000), **{**how, "holders": holders})
    assert "which `old` (0..9000000) reaches, leads out of `table`" in summary(given)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ([tensor(TABLE, 1000, 16), index(0, 999)], "sampled"),
        ([tensor(TABLE, 1000, 16), index(0, ROW - 1)], "sampled"),
        ([tensor(TABLE, 1000, 16), tensor(OTHER, 1000, 16), index(0, 9_000_000)], "sampled"),
        ([tensor(TABLE, 300), index(0, 900_000_000)], "add"),
        ([tensor(TABLE, 1000, 16), index(0, 9_000_000, how="held", frame=None, outer_frame=None)], "sampled"),
        ([tensor(TABLE, 1000, 16), index(-(1 << 62), 1 << 62)], "sampled"),
    ],
    ids=["inside", "not so far", "two tensors", "data of the same shape", "a variable only", "no numbers at all"],
)
def test_values_that_are_no_proof_leave_a_wild_pointer_wild(arguments: list[Argument], name: str, run: Path) -> None:
    """The same address, with operands that say less."""
    report = crashed(run, *arguments, addr=TABLE + 64 * ROW, name=name)
    assert verdict(report)[0] == "wild-pointer"


def test_pointers_to_the_rows_of_a_matrix_are_not_its_columns(run: Path) -> None:
    """Both reach the row; one counts the elements of the other from 0 to all."""
    offsets = index(0, 9_000_000, base=OTHER, size=40)
    columns = index(3, 9_500_000, size=9_000_000)
    report = crashed(run, tensor(TABLE, 200, 16), offsets, columns, addr=TABLE + 64 * ROW, name="_sparse_mm")
    assert "which `rows` (3..9500000) reaches" in summary(report)
    assert "check_invariants=True" in advice(report)


def test_smaller_tensor_of_a_call_is_named_with_the_larger_one(run: Path) -> None:
    """Its start is on the stack, the number of rows in a register: no index tensor is in the call."""
    small, large = tensor(TABLE, 8, 1), tensor(OTHER, 30_000_000, 2)
    rows = 15_000_000
    registers = {"rdx": TABLE + 4 * rows, "r13": rows, "r10": 4 * rows, "rax": TABLE}
    holders = (Holder("local", "mean", TABLE, STEP, True), Holder("local", "x", OTHER, STEP, True))
    report = crashed(
        run, small, large, addr=TABLE + 4 * rows, registers=registers, holders=holders, name="norm_backward"
    )
    assert verdict(report) == ("out-of-bounds", "likely")
    assert "of `mean` [8, 1], as if it were as large as `x` [30000000, 2]" in summary(report)
    assert advice(report).startswith("Compare the shapes of `mean` [8, 1] and `x` [30000000, 2], which line 41 passes")


@pytest.mark.parametrize("held", [("x",), ("mean",), ()], ids=["the larger one", "the smaller one", "none"])
def test_tensors_that_the_line_does_not_pass_are_not_compared(held: tuple[str, ...], run: Path) -> None:
    """Neither a variable nor the operator's caller has them: one is its own, as a result is."""
    rows, bases = 15_000_000, {"mean": 0x5581_0002_0000, "x": 0x5581_0004_0000}
    own: dict[str, Any] = {"frame": 0, "outer_frame": 0}
    registers = {"rdx": bases["mean"] + 4 * rows, "r13": rows, "r10": 4 * rows, "rax": bases["mean"]}
    report = crashed(
        run, tensor(bases["mean"], 8, 1, **own), tensor(bases["x"], 30_000_000, 2, **own),
        addr=bases["mean"] + 4 * rows, registers=registers, name="norm_backward",
        holders=tuple(Holder("local", name, bases[name], STEP, True) for name in held),
    )  # fmt: skip
    assert "as if it were as large as" not in summary(report)
    assert "passes together" not in advice(report)


def test_index_that_no_tensor_of_the_call_may_hold_is_not_looked_for_in_index_tensors(run: Path) -> None:
    """No tensor of integers is in the call, and none is larger."""
    rows = 15_000_000
    registers = {"rdx": TABLE + 4 * rows, "r13": rows, "rax": TABLE}
    report = crashed(run, tensor(TABLE, 8, 4), tensor(OTHER, 8, 4), addr=TABLE + 4 * rows, registers=registers)
    assert "no index tensor is among them" in advice(report)
    assert "min() and max()" not in advice(report)


def test_worker_of_openmp_has_the_tensors_of_the_line_that_opened_the_region(run: Path) -> None:
    """It refers to their memory only."""
    rows, opener = 15_000_000, PythonFrame("step", s.SCRIPT, 41)
    names = [(f"{s.TORCH}/lib/libgomp.so.1", None), *frames("norm_backward")]
    stack = ThreadStack(101, "python", 1, "done", tuple(NativeFrame(1, i, 2, None, "exact", f) for i, f in names))
    held: dict[str, Any] = {"how": "held", "frame": None, "outer_frame": None}
    passed_on = PythonFrame("OpOverloadPacket.__call__", f"{s.TORCH}/_ops.py", 1279)
    holders = (
        Holder("local", "args[3]", TABLE, passed_on, False, elements=8),
        Holder("local", "args[1]", OTHER, passed_on, False, elements=60_000_000),
        Holder("local", "mean", TABLE, opener, False, elements=8),
        Holder("local", "x", OTHER, opener, False, elements=60_000_000),
    )
    report = crashed(
        run, tensor(TABLE, 8, 1, **held), tensor(OTHER, 30_000_000, 2, **held),
        addr=TABLE + 4 * rows, registers={"rdx": TABLE + 4 * rows, "r13": rows, "rax": TABLE},
        stack_of=[(s.TORCH_CPU, "at::internal::invoke_parallel"), (f"{s.TORCH}/lib/libgomp.so.1", None)],
        python=[], tid=102, threads=(stack,), holders=holders,
        python_threads=((Box(pid=101).threads[0].pthread, (passed_on, opener)),),
    )  # fmt: skip
    assert "as if it were as large as `x` [30000000, 2]" in summary(report)


def test_check_of_inductor_names_the_index_and_the_table(run: Path) -> None:
    """Its message has a variable of generated code."""
    noted = CppException(101, "std::runtime_error", "kernel, main.cpp:59, index out of bounds: 0 <= tmp10 < 1000L")
    stack = [(s.TORCH_CPU, "__cxa_throw"), *frames("norm")]
    report = crashed(
        run, tensor(TABLE, 1000, 16), index(0, 1001), addr=0, signal=6, code=-6, sender_pid=101, stack_of=stack,
        cpp_exceptions=[noted],
    )  # fmt: skip
    assert verdict(report) == ("abort", "certain")
    assert "`rows` (0..1001) must be less than 1000, the size of `table` [1000, 16]" in summary(report)
    assert "TORCH_COMPILE_DISABLE=1" in advice(report)


def test_another_exception_has_nothing_to_do_with_indices(run: Path) -> None:
    noted = CppException(101, "std::runtime_error", "the file is out of bounds")
    report = crashed(
        run, tensor(TABLE, 1000, 16), index(0, 1001), addr=0, signal=6, code=-6, sender_pid=101, cpp_exceptions=[noted],
        stack_of=[(s.TORCH_CPU, "__cxa_throw"), *frames("norm")],
    )  # fmt: skip
    assert "rows" not in summary(report)


# ---- a write that ran on from the last tensor of its line ----

END = HEAP[1]


@pytest.mark.parametrize(
    ("code", "counted_from", "error_code", "named"),
    [
        (STORE, 0x5581_0019_8000, 6, "`out`"),
        (STORE, TABLE + 512, 6, "`image`"),
        (bytes.fromhex("410fb60408"), 0x5581_0019_8000, 4, "`image`"),  # movzx eax, byte ptr [r8 + rcx]
    ],
    ids=["behind the target", "counted from the other one", "a read"],
)
def test_write_is_past_the_last_tensor_of_its_line(
    code: bytes, counted_from: int, error_code: int, named: str, run: Path
) -> None:
    """A loop reads one tensor and runs past another: registers point into the one that is read."""
    holders = (Holder("local", "image", TABLE, STEP, True), Holder("local", "out", OTHER, STEP, True))
    registers = {"r8": counted_from, "rcx": END - counted_from, "r11": TABLE}
    report = crashed(
        run, addr=END, registers=registers, code_bytes=code, holders=holders, error_code=error_code,
        stack_of=[("/home/user/libresize.so", "enlarge"), PYTHON],
        numbers=(HeldNumber("width", 640, STEP, 0),),
    )  # fmt: skip
    assert verdict(report)[0] == "out-of-bounds"
    assert named in summary(report)


@pytest.mark.parametrize(("function", "named"), [("__memmove_avx512_unaligned_erms", True), ("enlarge", False)])
def test_copy_is_known_by_where_it_began_to_write(function: str, named: bool, run: Path) -> None:
    """memcpy() returns that, and goes by several pages at once; of other functions the register says nothing."""
    store = bytes.fromhex("0f2907")  # movaps xmmword ptr [rdi], xmm0
    at = END + 3136
    registers = {"rax": OTHER, "rdi": at, "rsi": 0x7000_0000_1000}
    report = crashed(
        run, addr=at, registers=registers, code_bytes=store, error_code=6,
        holders=(Holder("local", "out", OTHER, STEP, True),), stack_of=[(s.PYTHON, function), PYTHON],
    )  # fmt: skip
    assert ("wrote past the end of `out` in step()" in summary(report)) == named


@pytest.mark.parametrize(
    ("name", "shapes", "unfit"),
    [
        ("pdist_backward", ((9000, 8), (120,)), True),
        ("norm_backward", ((9000, 120), (120,)), False),
        ("norm_backward", ((9000, 4), (9000, 2)), False),
        ("mm", ((9000, 8), (8, 4)), False),
        ("loss", ((9000, 8), (9, 8)), True),
        ("linear", ((9000, 8), (9, 8)), False),
        ("lstm_cell", ((24, 5), (1, 5)), False),
    ],
    ids=[
        "of other pairs",
        "a weight",
        "the same rows",
        "a product",
        "of another batch",
        "a weight of the same columns",
        "a weight of a cell",
    ],
)
def test_tensors_that_do_not_fit_stand_in_the_headline_of_a_guess(
    name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], unfit: bool, run: Path
) -> None:
    """What belongs together differs; a product, or a weight for each channel, may."""
    large, small = tensor(OTHER, *shapes[0]), tensor(TABLE, *shapes[1])
    holders = (Holder("local", "kept", TABLE, STEP, True), Holder("local", "points", OTHER, STEP, True))
    report = crashed(run, large, small, addr=0x1357_9BDF_0240, name=name, holders=holders)
    assert ("do not fit" in summary(report)) == unfit
    assert advice(report).startswith("Compare the shapes of `kept`") == unfit


PLACES = """import torch


def step(table, rows):
    return torch.ops.own.sampled(table, rows)


def main(files, table):
    rows = torch.tensor([{counts} for file in files])
    return step(table, rows)
"""


@pytest.mark.parametrize(("counts", "named"), [("file.tell()", True), ("file.rows", False)])
def test_index_that_counts_bytes_of_rows_is_named_with_the_line_that_counts(
    counts: str, named: bool, run: Path
) -> None:
    """Rows of 64 bytes, and numbers that are multiples of 64: so they may be, unless a line is seen to count bytes."""
    script = run / "look.py"
    script.write_text(PLACES.format(counts=counts), encoding="utf-8")
    os.utime(script, (0, 0))  # before the recorded process began
    inner = PythonFrame("step", str(script), 5)
    report = crashed(
        run, tensor(TABLE, 1000, 16), index(0, 57_600), addr=TABLE + 64 * 57_600,
        python=[("step", str(script), 5), ("main", str(script), 10)],
        holders=(Holder("local", "table", TABLE, inner, True), Holder("local", "rows", INDEX, inner, True)),
    )  # fmt: skip
    words = "`rows` counts the bytes of `table` [1000, 16], 64 for each row, where rows are meant."
    assert summary(report).endswith(words) == named
    assert (
        "Count rows: line 9 in main counts bytes (`file.tell()`). Else pass `rows // 64`" in advice(report)
    ) == named
