"""Why a tensor that a module keeps has no elements."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.slicing import zero_sizes as module
from pytracer.decode.types.snapshot import PythonFrame as Recorded
from pytracer.report.job import PythonFrame

SOURCE = """\
class Norm(nn.Module):
    def __init__(self, width, track=True):
        size = {size}
        {sets}
    def forward(self, x):
        return torch.native_batch_norm(x, self.mean)
first = Norm(8)
second = Norm(8, {given})
second(x)
"""
BUFFER = "self.register_buffer('mean', torch.zeros(size))"


def words(
    folder: Path, monkeypatch: pytest.MonkeyPatch, size: str, sets: str = BUFFER, given: str = "track=False"
) -> str | None:
    file = folder / "norm.py"
    file.write_text(SOURCE.format(size=size, sets=sets, given=given), encoding="utf-8")
    frames = [PythonFrame(function="Norm.forward", file=str(file), line=6)]
    monkeypatch.setattr(module, "program_frames", lambda view: frames)
    monkeypatch.setattr(module, "place_of", lambda view, file, line: f"line {line}")
    process = SimpleNamespace(snapshot=SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9))
    view: Any = SimpleNamespace(process=process)
    item: Any = SimpleNamespace(expression="self.mean", frame=Recorded("Norm.forward", str(file), 6))
    found = module.zero_size(view, item)
    return found.words if found is not None else None


@pytest.mark.parametrize("sets", [BUFFER, "self.mean = torch.zeros(size)"], ids=["a buffer", "an attribute"])
def test_choice_of_no_elements_is_named_with_the_call_that_makes_it(
    sets: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = words(tmp_path, monkeypatch, "width if track else 0", sets)
    assert said == "line 3 makes the size 0 (`width if track else 0`), and line 8 passes `track=False`"


def test_choice_the_other_way_round(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = words(tmp_path, monkeypatch, "0 if not track else width", "self.mean = torch.zeros(size)")
    assert said is not None and said.endswith("and line 8 passes `track=False`")


def test_call_that_chooses_the_other_branch_is_not_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = words(tmp_path, monkeypatch, "width if track else 0", given="track=True")
    assert said == "line 3 makes the size 0 (`width if track else 0`)"


@pytest.mark.parametrize(
    ("size", "sets"),
    [
        ("width", BUFFER),
        ("width if track else 1", BUFFER),
        ("width if track else 0", "self.register_buffer('var', torch.zeros(size))"),
        ("width if track else 0", "self.mean = torch.zeros(size, width)"),
    ],
    ids=["no choice", "of one", "of another buffer", "of two dimensions"],
)
def test_other_sizes_are_not(size: str, sets: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert words(tmp_path, monkeypatch, size, sets) is None
