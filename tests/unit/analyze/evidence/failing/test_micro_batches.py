"""A batch that a pipeline's schedule cuts into micro-batches of unequal sizes."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import explained
from pytracer.report.job import ExceptionReport, OuterFrameReport, PythonFrame, VariableReport

SOURCE = """def loss_fn(pred, labels):
    return cross_entropy(pred, labels)

def main():
    schedule = ScheduleGPipe(stage, n_microbatches=PARTS, loss_fn=loss_fn)
    schedule.step(target=labels)
"""


@pytest.mark.parametrize(("batch", "parts", "told"), [(8, "3", True), (9, "3", False), (8, None, False)])
def test_batch_that_is_not_divisible(batch: int, parts: str | None, told: bool, tmp_path: Path) -> None:
    """The look-alikes: one that is, and a number that is not known."""
    file = tmp_path / "train.py"
    file.write_text(SOURCE, encoding="utf-8")
    schedules = PythonFrame(
        function="step", file="/x/site-packages/torch/distributed/pipelining/schedules.py", line=303
    )
    stack = [
        PythonFrame(function="cross_entropy", file="/x/site-packages/torch/nn/functional.py", line=3555),
        PythonFrame(function="loss_fn", file=str(file), line=2),
        schedules,
        PythonFrame(function="main", file=str(file), line=6),
    ]
    held = [VariableReport(name="labels", value=f"[{batch}, 16] int64, 0..63")]
    held += [VariableReport(name="PARTS", value=parts)] if parts is not None else []
    report = ExceptionReport(
        type="ValueError",
        message="Expected input batch_size (48) to match target batch_size (32).",
        outer=[OuterFrameReport(frame=3, variables=held)],
    )
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    found = explained(snapshot, report, stack)
    assert ((found.subject or "") == "the batch of 8 is not divisible by 3 micro-batches") is told
    assert ("(6 or 9)" in (found.words or "")) is told
