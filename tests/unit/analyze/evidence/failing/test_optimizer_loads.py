"""The line that loads an optimizer's state in another method: whether a condition decides that it runs."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import explained
from pytracer.report.job import ExceptionReport, PythonFrame

SOURCE = """class Trainer:
    def __init__(self, model, path):
        self.optimizer = torch.optim.Adam(model.parameters())
    def {name}(self, path):
        {load}
    def fit(self, path, rounds=3):
        {call}
        self.optimizer.step()
trainer = Trainer(Net(), None)
trainer.fit("a.pt")
"""
MISFIT = "The size of tensor a (4) must match the size of tensor b (5) at non-singleton dimension 1"
LOAD = "self.optimizer.load_state_dict(torch.load(path))"


def words(folder: Path, load: str, call: str = "self.resume(path)", name: str = "resume") -> str:
    """Of the step() in fit()."""
    file = folder / "train.py"
    text = SOURCE.format(load=load, call=call, name=name)
    file.write_text(text, encoding="utf-8")
    line = text.splitlines().index("        self.optimizer.step()") + 1
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9, named={}, rank=None)
    frames = [
        PythonFrame(file="/x/site-packages/torch/optim/adam.py", function="_single_tensor_adam", line=456),
        PythonFrame(function="Trainer.fit", file=str(file), line=line),
        PythonFrame(function="<module>", file=str(file), line=line + 2),
    ]
    return explained(snapshot, ExceptionReport(type="RuntimeError", message=MISFIT), frames).words or ""


@pytest.mark.parametrize(
    ("load", "call"),
    [
        (f"if path:\n            {LOAD}", "self.resume(path)"),
        (f"if not path:\n            return\n        {LOAD}", "self.resume(path)"),
        (LOAD, "if path:\n            self.resume(path)"),
        (LOAD, "pass"),
    ],
    ids=["in it", "left before", "around its call", "never called"],
)
def test_load_in_another_method_is_hedged_where_a_condition_decides(load: str, call: str, tmp_path: Path) -> None:
    """In that method, or around the calls of it."""
    assert "loads one, if it ran, and load_state_dict()" in words(tmp_path, load, call)


@pytest.mark.parametrize(
    ("load", "call"),
    [
        (LOAD, "self.resume(path)"),
        (f"if not path:\n            raise ValueError(path)\n        {LOAD}", "self.resume(path)"),
        (LOAD, "if rounds:\n            pass\n        self.resume(path)"),
    ],
    ids=["called", "raises otherwise", "another condition"],
)
def test_load_in_another_method_that_ran_is_said_plainly(load: str, call: str, tmp_path: Path) -> None:
    assert "loads one, and load_state_dict()" in words(tmp_path, load, call)
