"""A kernel of torch that leaves a tensor: the report names the tensors of its call, also from OpenMP's threads."""

from __future__ import annotations

from pathlib import Path

from pytracer.report.job import ProcessReport, Report
from tests.conditions import needs_capstone, needs_core, needs_native, needs_torch
from tests.support.crash import victim

pytestmark = [needs_core, needs_torch, needs_native, needs_capstone]


def crashed(way: str, run: Path) -> tuple[Report, ProcessReport]:
    report = victim("rows_outside.py", way, run=run, OMP_NUM_THREADS="2").report
    (process,) = report.processes or []
    return report, process


def test_statistics_that_are_too_few_are_named_with_the_tensor_they_were_passed_with(tmp_path: Path) -> None:
    """The worker refers to memory only: shapes come from the variables of the line."""
    report, process = crashed("statistics_of_a_part", tmp_path / "run")
    assert report.verdict is not None and process.operator is not None
    assert (report.verdict.class_, report.verdict.confidence) == ("out-of-bounds", "certain")
    assert "`mean` [8, 1] and `weight` [2] make 16, where native_layer_norm_backward" in (report.verdict.summary or "")
    assert (report.verdict.advice or "").startswith("Compare `mean` [8, 1], which line 12")
    assert "x [12000000, 2] float32" in (process.operator.says or "")


def test_columns_of_a_large_pattern_are_read_and_named(tmp_path: Path) -> None:
    """30,000 of them."""
    report, process = crashed("columns_beyond", tmp_path / "run")
    assert report.verdict is not None and process.operator is not None
    assert report.verdict.class_ == "out-of-bounds"
    assert "leads out of `key` [" in (report.verdict.summary or "")
    assert "Check the indices of the sparse tensor" in (report.verdict.advice or "") or "`col`" in (
        report.verdict.advice or ""
    )
    column = next(item for item in process.operator.tensors or [] if item.maximum == 270_000_000)
    assert (column.minimum, column.elements) == (9000, 30_000)
