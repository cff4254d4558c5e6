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
    model = {wrap}
    for epoch in range(4):
        {after}
        train(model)
def train(model):
    {inside}
    model(x)
class Trainer:
    def __init__(self, net): self.net = net
    def on_epoch(self): {method}
{other}"""
RUN = "return self.head(self.body(x))"
DEEP = "if self.deep:\n            x = self.body(x)\n        return self.head(x)"
NAMED = "for name, p in model.named_parameters():\n            if 'body' in name: p.requires_grad = False"
NAMES = ["body.weight", "body.bias"]
FREEZES = "freeze(model.module.body)"


def said(folder: Path, flag: str | None = None, **parts: str) -> str | None:
    """`flag`: what the variable `late` of main() was when DDP raised."""
    places = ("early", "built", "before", "after", "inside", "method", "other")
    file = folder / "train.py"
    file.write_text(
        PROGRAM.format(**{**dict.fromkeys(places, "pass"), "run": RUN, "wrap": "DDP(net)", **parts}), encoding="utf-8"
    )
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


TEACHER = """class Teacher(nn.Module):
    def __init__(self):
        self.body = nn.Linear(4, 4)
    def forward(self, x):
        return self.body(x)
"""


@pytest.mark.parametrize(
    "parts",
    [
        {"other": TEACHER},
        {"other": TEACHER.replace("        return", "        self.body.requires_grad_(False)\n        return")},
        {"other": TEACHER.replace("self.body =", "self.body: nn.Module =")},
        {"before": "net(torch.zeros(1, 4))"},
        {"before": "net.forward(torch.zeros(1, 4))"},
        {"before": "train(net)"},
    ],
)
def test_forward_that_may_run_before_the_wrapping_explains_nothing(parts: dict[str, str], tmp_path: Path) -> None:
    """Of another class that has such a layer, too; or in a round that tries the model out."""
    assert said(tmp_path, **{"run": WARM + RUN, **parts}) is None


def test_class_with_other_layers_and_a_call_of_another_variable_change_nothing(tmp_path: Path) -> None:
    other = TEACHER.replace("self.body", "self.tail")
    told = said(tmp_path, run=WARM + RUN, before="net = net.to(0); device = train(0); train(device)", other=other)
    assert "freezes `body` after line" in (told or "")


@pytest.mark.parametrize(("wrap", "is_known"), [("DDP(net.to(device))", True), ("wrap(net)", False)])
def test_variable_that_is_wrapped_is_the_model_itself(wrap: str, is_known: bool, tmp_path: Path) -> None:
    """Not the device that it is moved to; of one that a function is given nobody knows what was done with it."""
    other = "def wrap(net):\n    return DDP(net)\n" if not is_known else ""
    before = f"device = 0; train(device); model = {wrap}"
    told = said(tmp_path, run=WARM + RUN, before=before, wrap="net", other=other)
    assert (told is not None) == is_known, told


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
