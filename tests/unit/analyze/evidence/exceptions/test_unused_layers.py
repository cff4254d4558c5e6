"""Where a layer without gradients is made and used: a branch, no use at all, or nothing that is certain."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.exceptions.unused_layers import unused_layer
from pytracer.report.job import PythonFrame

PROGRAM = """class Net(nn.Module):
    def __init__(self):
        self.head = nn.Linear(4, 2)
        self.aux = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
        self.extra = nn.Linear(4, 4)
        self.body = nn.Linear(2, 4)
        self.late = nn.Linear(4, 4)
        self.twice = nn.Linear(4, 4)
    def forward(self, x):
        x = self.twice(self.twice(self.body(x)))
        y = self.twice(x)
        if self.with_aux:
            return self.head(x), self.aux(x)
        if not self.training:
            return self.head(x)
        return self.late(x)
net = Net()
net(x)
"""


reasons: list[str | None] = []  # of the last call, for the headline


def said(folder: Path, names: list[str], program: str = PROGRAM) -> str | None:
    file = folder / "train.py"
    file.write_text(program, encoding="utf-8")
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9, recorded=lambda _: ())
    frames = [PythonFrame(function="<module>", file=str(file), line=18)]
    view: Any = SimpleNamespace(
        process=SimpleNamespace(snapshot=snapshot), exception_stack_of_program=frames, exception=None
    )
    found = unused_layer(view, names)
    reasons.append(found.reason if found is not None else None)
    return found.words if found is not None else None


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (
            ["aux.0.weight", "aux.1.bias"],
            (
                "`aux` (train.py:4: `nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))`) is used only at train.py:13 in "
                "forward(), below `if self.with_aux` (line 12): see what decides that here"
            ),
        ),
        (
            ["module.extra.weight"],
            "No method of Net uses `extra` (train.py:5: `nn.Linear(4, 4)`): remove it, or use it in forward()",
        ),
        (
            ["late.weight", "late.bias"],
            (
                "`late` (train.py:7: `nn.Linear(4, 4)`) is used only at train.py:16 in forward(), behind `if not "
                "self.training` (line 14), which leaves: see what decides that here"
            ),
        ),
        (
            ["body.weight"],
            (
                "`body` (train.py:6: `nn.Linear(2, 4)`) is used only at train.py:10 in forward(): that line did not "
                "run, what it gives takes no part in the loss, or parts of it ran without gradients "
                "(torch.no_grad(), detach())"
            ),
        ),
    ],
)
def test_layer_is_told_with_its_use(names: list[str], words: str, tmp_path: Path) -> None:
    """By the attribute that all the parameters are below."""
    assert said(tmp_path, names) == words
    why = words.partition(" is used only")[2].partition(": see")[0]
    if "that line did not run" in words:
        assert reasons[-1] is None  # several explanations are none
    elif why:
        assert reasons[-1] is not None and reasons[-1].endswith(f" is used only{why}")
    else:
        assert reasons[-1] == "no method of Net uses `extra` (train.py:5)"


@pytest.mark.parametrize("names", [["aux.0.weight", "extra.weight"], ["weight"], ["twice.weight"], ["other.weight"]])
def test_nothing_is_said_of_several_layers_or_uses(names: list[str], tmp_path: Path) -> None:
    """Also of a parameter of the module itself, and of a layer that another file makes."""
    assert said(tmp_path, names) is None


def test_nothing_is_said_where_two_classes_make_it(tmp_path: Path) -> None:
    """Which one is meant is not known."""
    other = "class Other:\n    def __init__(self):\n        self.aux = nn.Linear(1, 1)\n"
    assert said(tmp_path, ["aux.weight"], PROGRAM + other) is None


LIST = """import torch
class Net(nn.Module):
    def __init__(self):
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    def forward(self, x):
        for layer in self.layers:
            if {test}:
                continue
            x = layer(x)
        return x
torch.manual_seed(rank)
net = Net()
net(x)
"""


@pytest.mark.parametrize(
    ("test", "why"),
    [
        (
            "torch.rand(1) < 0.1",
            (
                ": each rank draws `torch.rand(1)` of line 7 for itself; "
                "line 11 (`torch.manual_seed(rank)`) seeds by the rank"
            ),
        ),
        ("x.mean() < 0", ": see what decides that here"),
    ],
)
def test_layer_of_a_list_is_told_with_what_leaves_it_out(test: str, why: str, tmp_path: Path) -> None:
    """The loop reads the list always; what it gives runs behind a condition."""
    words = said(tmp_path, ["layers.1.weight", "layers.1.bias"], LIST.format(test=test))
    assert words is not None
    assert words.endswith(f" runs only behind `if {test}` (train.py:7, which leaves){why}")
    assert reasons[-1] == f"`layers` (train.py:4) runs only behind `if {test}` (train.py:7, which leaves)"
