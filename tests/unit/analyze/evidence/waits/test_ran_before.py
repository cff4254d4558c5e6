"""What the parent of a forked child had run before: the call by which, and calls that only have its name."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.waits.ran_before import ran_before
from pytracer.report.job import PythonFrame

PROGRAM = """class Sim:
    def step(self):
        return torch.ones(9).sum()
def warm_up():
    return torch.ones(9).sum()
def main():
    {before}
    start()
main()
"""


@pytest.mark.parametrize(
    ("before", "line"),
    [
        ("warm_up()", 7),
        ("sim = Sim(); sim.step()", 7),
        ("optimizer.step()", None),  # another object's
        ("subprocess.run(['warm_up'])", None),
        ("x = warm_up() if hot else 0", None),
        ("pass", None),
    ],
)
def test_call_of_the_function_that_the_child_waits_in(before: str, line: int | None, tmp_path: Path) -> None:
    """By its name, or as a method of that class."""
    file = tmp_path / "train.py"
    file.write_text(PROGRAM.format(before=before), encoding="utf-8")
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9, threads=(), pid=1)
    view: Any = SimpleNamespace(process=SimpleNamespace(snapshot=snapshot))
    stack = [
        PythonFrame(function="Sim.step", file=str(file), line=3),
        PythonFrame(function="warm_up", file=str(file), line=5),
        PythonFrame(function="main", file=str(file), line=8),
    ]
    found = ran_before(view, stack, 2)
    assert (found.line if found is not None else None) == line
