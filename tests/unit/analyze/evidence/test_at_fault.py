"""The expressions of the failing line that may be a tensor of a known name."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence import at_fault as module
from pytracer.analyze.evidence.at_fault import names_on_line
from pytracer.analyze.evidence.operators.operator import OperatorTensor
from pytracer.report.job import PythonFrame


@pytest.mark.parametrize(
    ("name", "line", "found"),
    [
        ("parameter up.weight of Net", "y = f(self.weight, x)", ["self.weight"]),
        ("parameter weight of Net", "y = f(self.weight, x)", ["self.weight"]),
        ("parameter weight", "y = f(weight, self.bias)", ["weight"]),
        ("buffer table of Net", "y = f(self.table, self.weight)", ["self.table"]),
        ("exp_avg of layers.0.weight", "exp_avg.add_(grad)", ["exp_avg"]),
        ("gradient of weight", "y = f(self.weight)", []),
        ("parameter weights of Net", "y = f(self.weight)", []),
        ("ids", "y = f(ids)", ["ids"]),
        (None, "y = f(ids)", []),
    ],
)
def test_names_that_a_line_may_have_for_it(
    name: str | None, line: str, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    view: Any = SimpleNamespace(process=SimpleNamespace(snapshot=None))
    monkeypatch.setattr(module, "program_frames", lambda view: [PythonFrame("forward", "/train.py", 1)])
    monkeypatch.setattr(module, "syntax_tree", lambda snapshot, frame: ast.parse(line))
    item: Any = None
    assert names_on_line(view, OperatorTensor(item, name, None, passed=True)) == found
