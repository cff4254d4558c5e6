"""Loaders that a dict holds: the record of the one that was made at the line tells their samples."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.decode.types.journal import Loader
from pytracer.decode.types.storages import PythonFrame
from tests.unit.analyze.evidence.test_failing import of_program

SOURCE = """\
from torch.utils.data import DataLoader, TensorDataset
class Trainer:
    def __init__(self, rows):
        data = TensorDataset(torch.ones(rows, 3))
        self.loaders = {
            "train": DataLoader(data, batch_size=4, num_workers=0),
            "val": DataLoader(data, batch_size=4),
        }
        self.norm = nn.BatchNorm1d(3)
    def run(self):
        for n, (x,) in enumerate(self.loaders["train"], 1):
            self.norm(x)
Trainer(5).run()
"""


def words(folder: Path, *made: tuple[int, int]) -> str | None:
    """Of loaders at lines, each with its number of samples."""

    def judge(snapshot: Any, *given: Any) -> Explanation:
        at = [PythonFrame(function="__init__", file=str(folder / "train.py"), line=line) for line, _ in made]
        facts = [
            Loader(samples=samples, batch_size=4, drop_last=False, plain=True, batches=-(-samples // 4), at=place)
            for place, (_, samples) in zip(at, made, strict=True)
        ]
        snapshot.facts = tuple(SimpleNamespace(data=item, mono_ns=0) for item in facts)
        return explained(snapshot, *given)

    return of_program(folder, SOURCE, judge)


def test_last_batch_of_a_loader_that_a_dict_holds_is_told(tmp_path: Path) -> None:
    found = words(tmp_path, (6, 5), (7, 5))
    assert found is not None
    assert "the last batch of `self.loaders['train']` has 1 of 5 samples (batch_size=4). Set drop_last=True" in found
    assert "at line 6" in found


@pytest.mark.parametrize("made", [((6, 6), (7, 5)), ((7, 5),), ((6, 5), (6, 5)), ()])
def test_no_last_batch_is_told_of_another_or_a_second_loader(made: tuple[tuple[int, int], ...], tmp_path: Path) -> None:
    """The look-alikes: its samples leave another rest, or no single record is of that line."""
    assert "last batch" not in (words(tmp_path, *made) or "")
