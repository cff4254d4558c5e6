"""Layers whose every use is below torch.no_grad(), by the source of their class."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.exceptions.layers_without_gradients import layers_without_gradients
from pytracer.report.job import PythonFrame

PROGRAM = """class Head(nn.Module):
    def __init__(self):
        self.lateral = nn.Linear(4, 4)
        self.fpn = nn.Linear(4, 4)
        self.seg = nn.Linear(4, 2)
        self.teacher = nn.Linear(4, 4)
        self.both = nn.Linear(4, 4)
    def forward(self, x):
        with torch.no_grad():
            y = self.fpn(self.lateral(x)) + self.both(x)
        return self.seg(self.both(x) * y), self.targets(x)
    @torch.no_grad()
    def targets(self, x):
        return self.teacher(x)
net = Head()
"""


def said(folder: Path, names: list[str], program: str = PROGRAM) -> str | None:
    file = folder / "train.py"
    file.write_text(program, encoding="utf-8")
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    frames = [PythonFrame(function="<module>", file=str(file), line=15)]
    view: Any = SimpleNamespace(process=SimpleNamespace(snapshot=snapshot), exception_stack_of_program=frames)
    found = layers_without_gradients(view, names)
    return found.words if found is not None else None


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (
            ["head.lateral.weight", "head.lateral.bias", "head.fpn.weight"],
            "`lateral` and `fpn` of Head run only below `with torch.no_grad()` (train.py:9)",
        ),
        (["head.teacher.weight"], "`teacher` of Head runs only below `@torch.no_grad()` (train.py:12)"),
        (["head.both.weight"], None),  # also used with gradients
        (["head.lateral.weight", "head.teacher.weight"], None),  # two lines
        (["head.seg.weight"], None),
        (["head.absent.weight"], None),
        (["weight"], None),
    ],
)
def test_the_line_that_switches_gradients_off_is_named(names: list[str], words: str | None, tmp_path: Path) -> None:
    """Where it alone explains all of the parameters."""
    assert said(tmp_path, names) == words


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("if self.tune: return self.tower(x)", "with torch.no_grad(): return self.tower(x)", True),
        ("y = self.tower(x + 1)", "with torch.no_grad(): return self.tower(x) + y", False),
        ("if self.tune: return self.tower(x)", "return self.tower(x)", False),
    ],
    ids=["one way each", "both run", "never off"],
)
def test_branch_by_which_they_run_with_gradients_is_named(first: str, second: str, told: bool, tmp_path: Path) -> None:
    """Not of a layer that the same way runs twice."""
    lines = ["class Net(nn.Module):", "    def __init__(self):", "        self.tower = nn.Linear(4, 4)"]
    lines += ["    def encode(self, x):", f"        {first}", f"        {second}", "net = Net()"]
    words = "`tower` of Net runs below `with torch.no_grad()` (train.py:6) unless `self.tune` (line 5)"
    assert said(tmp_path, ["tower.weight"], "\n".join(lines)) == (words if told else None)
