"""Numbers that a write ran over: those of what the argument was made of are taken, as far as they are its own."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytracer.decode.types.snapshot import Argument, HeldNumber, Holder, PythonFrame
from pytracer.report.job import Report
from tests.conditions import needs_capstone
from tests.support import scenarios as s
from tests.support.deaths import PROGRAM, advice, died, summary, verdict
from tests.support.synth import Box

HEAP = (0x5581_0000_0000, 0x5581_0020_0000, "rw-p", 0, "[heap]")
EDGES, INDEX = 0x5581_0010_0000, 0x5581_0018_0000
STORE = bytes.fromhex("0f1102")  # movups xmmword ptr [rdx], xmm0
STACK = [
    (s.TORCH_CPU, "at::native::structured__convert_indices_from_coo_to_csr_structured_cpu::impl(at::Tensor const&)"),
    (s.TORCH_CPU, "at::_ops::_convert_indices_from_coo_to_csr::call(at::Tensor const&, long, bool)"),
    (s.PYTHON, "_PyEval_EvalFrameDefault"),
]
PROGRAM_TEXT = """import torch


def pointers(index, size):
    return torch._convert_indices_from_coo_to_csr(index, size)


def build(edges, size):
    row, col = edges
    col, order = {made}
    return pointers(col, size), row[order]
"""


def held(base: int, *sizes: int, numbers: tuple[int, int], offset: int = 0) -> Argument:
    elements, strides = 1, [1] * len(sizes)
    for size in sizes:
        elements *= size
    if len(sizes) > 1:
        strides[0] = sizes[1]
    return Argument(
        base ^ 0xFF, base, elements, offset, sizes, len(sizes), "int64", "cpu", minimum=numbers[0], maximum=numbers[1],
        frame=None, outer_frame=None, register=None, how="held", strides=tuple(strides),
    )  # fmt: skip


def report_of(
    run: Path,
    *,
    index: tuple[int, int] = (1, 1),
    row: tuple[int, int] = (0, 1199),
    made: str = "torch.sort(col)",
    error_code: int = 6,
) -> Report:
    """The edges are 0..10002499; the last ones are `row`."""
    script = run / "graph.py"
    script.write_text(PROGRAM_TEXT.format(made=made), encoding="utf-8")
    os.utime(script, (0, 0))
    inner, outer = PythonFrame("pointers", str(script), 5), PythonFrame("build", str(script), 11)
    given = replace(held(INDEX, 900, numbers=index), how="reference", frame=0, outer_frame=2)
    arguments = (given, held(EDGES, 2, 900, numbers=(0, 10002499)), held(EDGES, 900, numbers=row))
    holders = (
        Holder("local", "index", INDEX, inner, True, elements=900),
        Holder("local", "edges", EDGES, outer, True, elements=1800),
        Holder("local", "row", EDGES, outer, True, elements=900),
        Holder("local", "col", INDEX, outer, True, elements=900),
    )
    numbers = (HeldNumber("size", 2500, inner, 0), HeldNumber("size", 2500, outer, 0))
    registers = {"rdx": HEAP[1], "trapno": 14}
    return died(
        run, box=Box(pid=101).alloc(EDGES, 14400).alloc(INDEX, 7200), addr=HEAP[1], registers=registers,
        code_bytes=STORE, error_code=error_code, mappings=[PROGRAM, HEAP], stack_of=STACK, arguments=arguments,
        holders=holders, numbers=numbers, python=[("pointers", str(script), 5), ("build", str(script), 11)],
    )  # fmt: skip


@needs_capstone
def test_numbers_of_what_it_was_made_of_are_taken(run: Path) -> None:
    """The other row of `edges` has no number as large."""
    report = report_of(run)
    assert verdict(report) == ("out-of-bounds", "likely")
    assert "`index` [900], made of `edges[1]` (line 9), holds 10002499, where _convert_indices_from_" in summary(report)
    assert "the write went over it" in advice(report) and "`edges` [2, 900] holds 0..10002499" in advice(report)
    assert "too large for the memory" not in advice(report)
    operator = (report.processes or [])[0].operator
    assert operator is not None and "all 1 (perhaps written by this access)" in (operator.says or "")


@needs_capstone
@pytest.mark.parametrize(
    "how",
    [{"row": (0, 10002499)}, {"made": "torch.topk(col, 900)"}, {"made": "col % size, col.argsort()"}],
    ids=["the number may be of the other row", "not all numbers", "other numbers"],
)
def test_where_its_numbers_are_not_known_what_is_not_checked_is_said(how: dict[str, Any], run: Path) -> None:
    report = report_of(run, **how)
    assert "; _convert_indices_from_coo_to_csr does not check that `index.max() < size`" in summary(report)
    assert "10002499, where" not in summary(report)
    assert "Check that `index.max() < size` and `index.min() >= 0` before line 5" in advice(report)
    assert "too large for the memory" not in advice(report)


@needs_capstone
@pytest.mark.parametrize(
    "how", [{"index": (0, 2499)}, {"error_code": 4}], ids=["numbers that differ", "nothing was written"]
)
def test_numbers_that_nothing_went_over_are_believed(how: dict[str, Any], run: Path) -> None:
    report = report_of(run, **how)
    assert "does not check" not in summary(report) and "made of" not in summary(report)
    operator = (report.processes or [])[0].operator
    assert operator is not None and "perhaps written" not in (operator.says or "")
