"""A meter that adds up what a loop logs, with its graph; and meters of numbers, or of what backward() frees."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.ends.keeping_lines import KeepingLine
from pytracer.analyze.evidence.ends.metered_graphs import metered_graph
from pytracer.report.job import PythonFrame

METER = """class Meter:
    def update(self, value, n=1):
        {first}
        self.total += value * n
def train(model, loader, meters):
    for x, y in loader:
        out = model(x)
        loss = criterion(out, y)
        penalty = (out.softmax(-1) ** 2).sum()  # made
        (loss{term}).backward()
        stats = {{"loss": loss, "penalty": {logged}}}
        for name, meter in meters.items():
            meter.update(stats[name], len(x))
"""
LOGGER = """class Average:
    def add(self, number):
        self.numbers.append(number)
class Logger:
    def log(self, **values):
        for name, value in values.items():
            self.averages[name].add(value)
class Run:
    def fit(self):
        while self.step < 100:
            loss = self.model(self.batch())
            loss.backward()
            spread = self.spread_of(self.model.codes)
            self.logger.log(loss=loss.item(), spread=spread)
    def spread_of(self, codes):
        return (codes - codes.mean(0)).square().mean()  # made
"""
VALIDATE = """class Meter:
    def update(self, value):
        self.sum = self.sum + value
{decorator}def validate(model, loader, meter):
    for x in loader:
        out = model(x)  # made
        meter.update(criterion(out))
        meter.update(out.mean())
"""


def found(folder: Path, source: str) -> KeepingLine | None:
    """For the line with `# made`."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "# made" in text)
    snapshot: Any = SimpleNamespace(argv=("train.py",), created_wall_ns=time.time_ns() + 10**9)
    return metered_graph(snapshot, PythonFrame(function="train", file=str(file), line=line))


def test_result_that_is_only_logged_keeps_its_graph(tmp_path: Path) -> None:
    """The loss beside it is freed by backward(), and is not blamed."""
    kept = found(tmp_path, METER.format(first="self.value = value", term="", logged="penalty"))
    assert kept is not None and kept.subject == "line 4 adds up each `stats[name]` with its graph"
    assert "Line 4 (`self.total += value * n`, in Meter.update) adds up what line 13" in kept.advice
    assert "they keep what line 9 made in each" in kept.advice and ".item()" in kept.advice


def test_logger_that_hands_it_on_is_followed(tmp_path: Path) -> None:
    """By name, into a list of another class, of what a method of the loop returned."""
    kept = found(tmp_path, LOGGER)
    assert kept is not None and "in Average.add) keeps what" in kept.advice and "line 14" in kept.advice


def test_validation_without_no_grad_is_found(tmp_path: Path) -> None:
    """No backward() at all."""
    kept = found(tmp_path, VALIDATE.format(decorator=""))
    assert kept is not None and "`out.mean()`" in kept.subject


@pytest.mark.parametrize(
    ("first", "term", "logged"),
    [
        ("pass", " + 0.1 * penalty", "penalty"),  # backward() frees it
        ("pass", "", "penalty.item()"),
        ("pass", "", "penalty.detach()"),
        ("value = float(value)", "", "penalty"),  # the meter takes numbers
        ("value = value.detach()", "", "penalty"),
        ("pass", "", "loss"),
    ],
)
def test_what_has_no_graph_left_is_not_blamed(first: str, term: str, logged: str, tmp_path: Path) -> None:
    """Something else keeps it."""
    assert found(tmp_path, METER.format(first=first, term=term, logged=logged)) is None


@pytest.mark.parametrize(
    ("decorator", "caller"),
    [
        ("@torch.no_grad()\n", ""),
        (
            "",
            "def test(*given):\n    with torch.inference_mode():\n        validate(*given)\n",
        ),
        ("", "def test(*given):\n    torch.set_grad_enabled(False)\n    validate(*given)\n"),
    ],
)
def test_validation_without_graphs_is_not_blamed(decorator: str, caller: str, tmp_path: Path) -> None:
    """By its decorator, or by who calls it."""
    assert found(tmp_path, VALIDATE.format(decorator=decorator) + caller) is None


def test_what_a_function_calls_backward_of_is_freed(tmp_path: Path) -> None:
    """`optimize(penalty)`, which a loop calls in place of backward()."""
    source = METER.format(first="self.value = value", term="", logged="penalty")
    source = source.replace("        (loss).backward()\n", "        optimize(loss + penalty)\n")
    source += "def optimize(loss):\n    loss.backward()\n"
    assert found(tmp_path, source) is None
