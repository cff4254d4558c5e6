"""Losses that a loop adds up with their graphs, in a caller of what made them; and sums that keep nothing."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.ends.keeping_lines import KeepingLine, keeping_line
from pytracer.report.job import PythonFrame

MODEL = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(2, 2), nn.Linear(2, 2)
    def forward(self, x):
        h = self.body(x).mean(1)  # made
        return self.head(h), torch.sigmoid(h)
"""
RUNNER = """
class Runner:
    def __init__(self, model):
        self.model = model
        self.ce, self.mse = nn.CrossEntropyLoss(), nn.MSELoss()
    {decorator}
    def losses(self, batch):
        a, b = self.model(batch["x"])
        ce = self.ce(a, batch["y"])
        mse = self.mse(b, batch["z"])
        return {returned}
    def train(self, loader):
        running = 0.0
        for batch in loader:
            loss, _, _, _ = self.losses(batch)
            loss.backward()
            running += loss.item()
        return running
    def validate(self, loader):
        total = first = second = hits = 0.0
        kept, sums = [], {{"ce": 0.0}}
        for batch in loader:
            loss, ce, mse, acc = self.losses(batch)
            {store}
        {after}
        return total / 9, hits
runner = Runner(Net())
for epoch in range(9):
    runner.train(data)
    {call}
"""
RETURNED = "ce + mse, ce, mse, (a.argmax(1) == batch['y']).float().mean()"
NEXT = "\n            "


def found(folder: Path, **parts: str) -> KeepingLine | None:
    """For the line with `# made`, of a model in a file of its own."""
    given = {
        "decorator": "", "returned": RETURNED, "store": "total += loss", "after": "", "call": "runner.validate(data)",
    }  # fmt: skip
    model, main = folder / "net.py", folder / "train.py"
    model.write_text(MODEL, encoding="utf-8")
    main.write_text("from net import *\nfrom torch import nn\n" + RUNNER.format(**{**given, **parts}), encoding="utf-8")
    line = next(n for n, text in enumerate(MODEL.splitlines(), 1) if "# made" in text)
    snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, argv=(str(main),), environment={})
    frame = PythonFrame(function="Net.forward", file=str(model), line=line)
    return keeping_line(snapshot, frame)


@pytest.mark.parametrize(
    ("store", "subject"),
    [
        ("total += loss", "train.py:26 adds up `loss` with the graphs of all rounds"),
        ("total = total + loss", "train.py:26 adds up `loss` with the graphs of all rounds"),
        ("total += loss * 4", "train.py:26 adds up `loss * 4` with the graphs of all rounds"),
        ("sums['ce'] += ce", "train.py:26 adds up `ce` with the graphs of all rounds"),
        ("kept.append(loss)", "train.py:26 keeps `loss` with the graphs of all rounds"),
        (f"total += loss{NEXT}hits += acc.item()", "train.py:26 adds up `loss` with the graphs of all rounds"),
        (f"total += loss{NEXT}hits += acc", "train.py:26 adds up `loss` with the graphs of all rounds"),
        (
            f"total += loss{NEXT}first += ce{NEXT}second += mse",
            "lines 26 to 28 of train.py add up `loss`, `ce` and `mse` with the graphs of all rounds",
        ),
        ("total += helper(loss)", "train.py:26 may add up `helper(loss)` with the graphs of all rounds"),
    ],
)
def test_losses_summed_by_a_caller_are_named(store: str, subject: str, tmp_path: Path) -> None:
    """Through the function that returns them, where the model is in another file."""
    result = found(tmp_path, store=store)
    assert result is not None
    assert result.subject == subject
    assert result.endless == ("may" not in subject)
    assert "run validate(), whose loop calls no backward(), under torch.no_grad()" in result.advice


@pytest.mark.parametrize(
    "parts",
    [
        {"store": "total += loss.item()"},
        {"store": "total += float(loss)"},
        {"store": "total += loss.detach()"},
        {"store": "kept.append(loss.cpu().detach())"},
        {"store": "loss = loss.item()\n            total += loss"},
        {"store": "hits += acc"},
        {"store": "with torch.no_grad():\n                total += loss"},
        {"store": "loss.backward()\n            total += loss"},
        {"store": "total = 0.0\n            total += loss"},
        {"store": "kept.append(loss)\n            kept.clear()"},
        {"decorator": "@torch.no_grad()"},
        {"decorator": "@torch.inference_mode()"},
        {"returned": "(ce + mse).item(), ce.item(), mse.item(), 0"},
        {"returned": "(ce + mse).detach(), ce.detach(), mse.detach(), 0"},
        {"call": "with torch.no_grad():\n        runner.validate(data)"},
        {"call": "torch.set_grad_enabled(False)\n    runner.validate(data)"},
        {"after": "total.backward()"},  # the graphs are wanted
        {"call": "value, _ = runner.validate(data)\n    value.backward()"},
    ],
)
def test_sums_without_graphs_or_with_wanted_ones_are_not_named(parts: dict[str, str], tmp_path: Path) -> None:
    """Numbers, what is cut or never had a graph, what backward() frees or needs."""
    assert found(tmp_path, **parts) is None


def test_two_loops_that_sum_name_neither(tmp_path: Path) -> None:
    """Which one holds the memory is not known from the source."""
    assert (
        found(
            tmp_path,
            after="for batch in loader:\n            loss, _, _, _ = self.losses(batch)\n            total += loss",
        )
        is None
    )
