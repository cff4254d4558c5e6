"""A loss that no parameter is behind, at the line whose backward() a rank left out; and losses that have parameters."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.collectives.fresh_losses import FreshLoss, fresh_loss
from pytracer.report.job import PythonFrame
from tests.support.scenarios import program_in

SNAPSHOT: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
SOURCE = """def loss_of(model, boxes):
    if not boxes:
        {0}
    return model(boxes).sum()
def run(model, batches):
    for batch in batches:
        loss = loss_of(model, batch)
        {1}
"""


def found(run: Path, branch: str, last: str) -> FreshLoss | None:
    program = program_in(run, SOURCE.format(branch, last))
    return fresh_loss(SNAPSHOT, PythonFrame(file=str(program), line=8, function="run"))


@pytest.mark.parametrize(
    "made",
    [
        "torch.tensor([0.0], requires_grad=True)",
        "torch.zeros(1, device=boxes.device, requires_grad=True)",
        "torch.tensor(0.0).to('cpu').requires_grad_()",
        "boxes.new_zeros(()).requires_grad_(True)",
    ],
)
@pytest.mark.parametrize("last", ["loss.backward()", "scaler.scale(loss / 2).backward()", "fabric.backward(loss)"])
def test_new_tensor_as_the_loss_of_a_branch(made: str, last: str, run: Path) -> None:
    """Named with its line and text."""
    fresh = found(run, f"return {made}", last)
    assert fresh is not None and (fresh.line, fresh.text.replace('"', "'")[:9]) == (3, made[:9])
    assert "`outputs.sum() * 0`" in fresh.advice


@pytest.mark.parametrize(
    ("branch", "last"),
    [
        ("return model(boxes).sum() * 0", "loss.backward()"),
        ("return torch.zeros(1)", "loss.backward()"),  # raises on its own
        ("return torch.zeros(1, requires_grad=True)", "gather(loss)"),
        ("weights = torch.zeros(1, requires_grad=True)", "loss.backward()"),
        ("return model(torch.zeros(1, requires_grad=True))", "loss.backward()"),
    ],
)
def test_losses_with_parameters_and_other_tensors_are_none(branch: str, last: str, run: Path) -> None:
    """The look-alikes."""
    assert found(run, branch, last) is None


def test_two_such_places_are_not_told_apart(run: Path) -> None:
    """Which of them ran is not known."""
    made = "torch.zeros(1, requires_grad=True)"
    assert found(run, f"return {made} if boxes is None else None\n        x = 1\n        return {made}", "pass") is None
    program = program_in(
        run, SOURCE.format(f"return {made}", "loss.backward()") + f"def other(x):\n    if x:\n        return {made}\n"
    )
    assert fresh_loss(SNAPSHOT, PythonFrame(file=str(program), line=8, function="run")) is None
