"""The line that makes the module of a buffer or parameter, by its recorded name."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.preconditions import module_lines as module
from pytracer.report.job import PythonFrame

PROGRAM = """class Net(nn.Module):
    def __init__(self, base):
        self.stem = block(3, base)
        self.body = nn.ModuleList(block(base, base) for _ in range(2))
        self.head = None
    def forward(self, x):
        return self.stem(x)
class Other(nn.Module):
    def __init__(self):
        self.mlp = nn.Linear(3, 4)
class Third(nn.Module):
    def __init__(self):
        self.mlp = nn.Linear(4, 3)
"""


@pytest.mark.parametrize(
    ("name", "role", "words"),
    [
        ("buffer stem.1.running_mean", "buffer", "`stem` (line 3: `self.stem = block(3, base)`)"),
        ("buffer encoder.stem.1.running_mean of Net #2", "buffer", "`stem` (line 3: `self.stem = block(3, base)`)"),
        ("parameter stem.mlp.weight", "parameter", "`stem` (line 3: `self.stem = block(3, base)`)"),
        ("parameter mlp.weight", "parameter", None),  # of two classes
        ("parameter head.weight", "parameter", None),
        ("parameter weight", "parameter", None),
        ("exp_avg of stem.weight", "optimizer state", None),
    ],
)
def test_attribute_that_holds_the_module(
    name: str, role: str, words: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_text(PROGRAM, encoding="utf-8")
    stack = [PythonFrame(function="Net.forward", file=str(file), line=7)]
    monkeypatch.setattr(module, "program_frames", lambda view: stack)
    monkeypatch.setattr("pytracer.analyze.evidence.lifetime.where_made.program_frames", lambda view: stack)
    named = SimpleNamespace(of_storage=lambda storage, base: ([SimpleNamespace(name=name, role=role)], []))
    space = SimpleNamespace(uses=SimpleNamespace(named=named), live_around=lambda base: SimpleNamespace(base=base))
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    view: Any = SimpleNamespace(space=space, process=SimpleNamespace(snapshot=snapshot))
    assert module.module_line(view, 1) == words
