"""A layer that is frozen or replaced after DDP has wrapped the model; a freeze before that is none."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.exceptions.changed_layers import changed_layer
from pytracer.report.job import ExceptionReport, PythonFrame, VariableReport

PROGRAM = """class Net(nn.Module):
    def __init__(self, freeze):
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 2)
        {early}
    def forward(self, x):
        {run}
def freeze(module):
    for p in module.parameters():
        p.requires_grad = False
def build(flag):
    net = Net(flag)
    {built}
    return net
def main():
    net = build(False)
    {before}
    model = DDP(net)
    for epoch in range(4):
        {after}
        train(model)
def train(model):
    {inside}
    model(x)
class Trainer:
    def __init__(self, net): self.net = net
    def on_epoch(self): {method}
"""
RUN = "return self.head(self.body(x))"
DEEP = "if self.deep:\n            x = self.body(x)\n        return self.head(x)"
NAMED = "for name, p in model.named_parameters():\n            if 'body' in name: p.requires_grad = False"
NAMES = ["body.weight", "body.bias"]
FREEZES = "freeze(model.module.body)"


def said(folder: Path, flag: str | None = None, **parts: str) -> str | None:
    """`flag`: what the variable `late` of main() was when DDP raised."""
    places = ("early", "built", "before", "after", "inside", "method")
    file = folder / "train.py"
    file.write_text(PROGRAM.format(**{**dict.fromkeys(places, "pass"), "run": RUN, **parts}), encoding="utf-8")
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    frames = [PythonFrame(function="main", file=str(file), line=21)]
    values = [VariableReport(name="late", value=flag)] if flag is not None else []
    view: Any = SimpleNamespace(
        process=SimpleNamespace(snapshot=snapshot),
        exception_stack_of_program=frames,
        exception_stack=frames,
        exception=ExceptionReport(type="RuntimeError", message="", variables=values),
    )
    found = changed_layer(view, NAMES)
    return f"{found.words} | {found.advice}" if found is not None else None


@pytest.mark.parametrize(
    ("place", "text", "words"),
    [
        (
            "after",
            FREEZES,
            f"train.py:20 (`{FREEZES}`), by line 10, freezes `body` after line 18 has wrapped the model",
        ),
        ("after", "model.module.body.requires_grad_(False)", "train.py:20 (`model.module.body.requires_grad_(False)`)"),
        (
            "after",
            "if epoch > 1:\n            freeze(net.body)",
            "below `if epoch > 1` (line 20), freezes `body` after line 18 has",
        ),
        ("inside", FREEZES, f"train.py:23 (`{FREEZES}`), by line 10, freezes `body`"),
        (
            "after",
            "model.module.body = nn.Linear(4, 4)",
            "= nn.Linear(4, 4)`) replaces `body` after line 18 has wrapped",
        ),
        ("after", NAMED, "train.py:21 (`p.requires_grad = False`) freezes `body`"),
    ],
)
def test_layer_that_is_changed_after_the_wrapping_is_named(place: str, text: str, words: str, tmp_path: Path) -> None:
    told = said(tmp_path, **{place: text}) or ""
    assert words in told
    assert f"{'Replace' if '= nn' in text else 'Freeze'} `body` (line " in told
    assert "before line 18 wraps the model" in told


WARM = "if self.n > 9:\n            self.body.eval()\n            self.body.requires_grad_(False)\n        "


def test_layer_that_forward_itself_freezes_later_is_named(tmp_path: Path) -> None:
    """After so many rounds, in the model; to set it up there is not to run it below a condition."""
    told = said(tmp_path, run=WARM + RUN) or ""
    assert "(`self.body.requires_grad_(False)`), below `if self.n > 9` (line 7), freezes `body` after line" in told
    assert said(tmp_path, run=WARM + DEEP) is None


@pytest.mark.parametrize(
    "parts",
    [
        {"early": "if freeze: self.body.requires_grad_(False)"},
        {"built": "if flag: freeze(net.body)"},
        {"before": "net.body = nn.Linear(4, 4)"},
        {"method": "freeze(self.net.body)"},
        {"after": "freeze(model.module.head)"},
        {"after": "model.module.body.requires_grad_(True)"},
        {"after": FREEZES, "run": DEEP},
        {"after": FREEZES, "inside": FREEZES},
    ],
)
def test_other_lines_explain_nothing(parts: dict[str, str], tmp_path: Path) -> None:
    """The look-alikes: before the wrapping, of another object or layer, the other way, or not the only reason."""
    assert said(tmp_path, **parts) is None


@pytest.mark.parametrize(
    ("test", "flag", "ran"), [("late", "True", True), ("late", "False", False), ("not late", "True", False)]
)
def test_flag_that_was_not_set_is_known_to_have_frozen_nothing(test: str, flag: str, ran: bool, tmp_path: Path) -> None:
    """By the recorded value of the variable that the `if` asks."""
    told = said(tmp_path, flag, after=f"if {test}:\n            freeze(net.body)")
    assert (told is not None) == ran, told
