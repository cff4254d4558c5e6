"""A tensor that a loop's head only takes from a loader, and one that a line makes."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.lifetime import loop_batches as module
from pytracer.analyze.naming import LineWords
from pytracer.report.job import PythonFrame

PROGRAM = """class Sessions(Dataset):
    def __init__(self, n):
        self.history = torch.randint(1, n + 1, (9, 50))
        self.target = torch.zeros(9)
    def __getitem__(self, n):
        return self.history[n], self.target[n]
def evaluate(model, loader):
    for step, (history, target) in enumerate(loader):
        model(history, target)
def other(model):
    history = torch.randint(0, 9, (3,))
    for target in range(3):
        model(history, target)
evaluate(net, DataLoader(Sessions(9)))
"""


OF_SAMPLE = (
    ", which line 8 in evaluate takes from `loader` and line 3 in Sessions.__init__ (`self.history = torch.randint(1, "
    "n + 1, (9, 50))`) makes,"
)


@pytest.mark.parametrize(
    ("name", "made", "used", "words"),
    [
        ("history", 8, 9, OF_SAMPLE),
        ("step", 8, 9, ", which line 8 in evaluate takes from `loader`,"),
        ("history", 11, 13, ", which line 11 in other made,"),
    ],
    ids=["a part of the sample", "no part of it", "a line of its own"],
)
def test_line_that_makes_the_values(
    name: str, made: int, used: int, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_text(PROGRAM, encoding="utf-8")
    function = "evaluate" if used == 9 else "other"
    stack = [PythonFrame(function=function, file=str(file), line=used)]
    line = LineWords(f"line {made} in {function}", str(file), made)
    monkeypatch.setattr(module, "line_that_made", lambda view, base, quote: line)
    monkeypatch.setattr(module, "program_frames", lambda view: stack)
    monkeypatch.setattr("pytracer.analyze.evidence.lifetime.where_made.program_frames", lambda view: stack)
    view: Any = SimpleNamespace(
        process=SimpleNamespace(snapshot=SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9))
    )
    assert module.made_clause(view, 1, name) == words
