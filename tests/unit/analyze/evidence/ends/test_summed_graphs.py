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


@pytest.mark.parametrize(
    "parts",
    [
        {"store": "self.after(loss)\n            total += loss\n"
                  "    def after(self, loss):\n        self.update(loss)\n"
                  "    def update(self, loss):\n        loss.backward()\n"
                  "    def rest(self, total, hits):"},
        {"store": "kept.append(loss)\n            del kept[:-10]"},
        {"store": "self.last = deque(maxlen=9)\n        for batch in loader:\n"
                  "            loss, _, _, _ = self.losses(batch)\n            self.last.append(loss)"},
        {"after": "self.finish(total)\n    def finish(self, loss):\n        loss.backward()"
                  "\n    def rest(self, total, hits):\n        pass"},
        {"after": "return total\n    def closure(self, loader):\n        self.validate(loader).backward()"
                  "\n    def rest(self, total, hits):\n        pass"},
        {"store": "self.total += loss\n"
                  "    def end(self):\n        self.total.backward()\n"
                  "    def rest(self, total, hits):"},
        {"call": "without(runner.validate, data)\n"
                 "def without(function, *given):\n    with torch.no_grad():\n        return function(*given)"},
        {"decorator": "@quiet", "call": "runner.validate(data)\n"
                      "def quiet(function):\n    return torch.no_grad()(function)"},
        {"store": "switch = torch.no_grad() if self.model else None\n            with switch:\n"
                  "                total += loss"},
    ],
)  # fmt: skip
def test_sums_of_freed_bounded_or_wanted_graphs_are_not_named(parts: dict[str, str], tmp_path: Path) -> None:
    """backward() by a function of a function, what keeps only the last ones, and no_grad() by another name."""
    parts = {name: text + ("\n        pass" if text.endswith("rest(self, total, hits):") else "")
             for name, text in parts.items()}  # fmt: skip
    assert found(tmp_path, **parts) is None


def test_frozen_parameters_of_a_program_that_trains_nothing_make_no_graph(tmp_path: Path) -> None:
    """Without requires_grad_(False), the same is named."""
    for freezes in (True, False):
        text = RUNNER.replace("            loss.backward()\n", "")
        text = text.replace("self.model = model", "self.model = model.requires_grad_(False)") if freezes else text
        model, main = tmp_path / "net.py", tmp_path / "train.py"
        model.write_text(MODEL, encoding="utf-8")
        given = {"decorator": "", "returned": RETURNED, "store": "total += loss", "after": "",
                 "call": "runner.validate(data)"}  # fmt: skip
        text = text.replace("runner.train(data)", "pass").replace("            running += loss.item()\n", "")
        main.write_text("from net import *\nfrom torch import nn\n" + text.format(**given), encoding="utf-8")
        line = next(n for n, row in enumerate(MODEL.splitlines(), 1) if "# made" in row)
        snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, argv=(str(main),), environment={})
        named = keeping_line(snapshot, PythonFrame(function="Net.forward", file=str(model), line=line))
        assert (named is None) == freezes
