"""An end that the program asks for where its loss is not finite: the line that can have made it so."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.not_finite.refused_loss import refused_loss
from pytracer.report.job import PythonFrame

PROGRAM = """
import math, sys
def normalized(target):
    return (target - target.mean(-1)) / target.var(-1) ** 0.5
def train(data):
    for batch in data:
        loss = (batch - normalized(batch)).pow(2).mean()
        value = loss.item()
        if {test}:
            sys.exit(1)
"""


@pytest.mark.parametrize(
    ("test", "says"),
    [
        (
            "not math.isfinite(value)",
            "`value` is not finite; line 4 divides by `target.var(-1) ** 0.5`, which may be 0",
        ),
        ("torch.isnan(loss).any()", "`loss` is not finite; line 4 divides by `target.var(-1) ** 0.5`, which may be 0"),
        ("math.isfinite(value)", None),  # the program's end is due
        ("value > 10", None),
        ("not math.isfinite(value) and len(data) > 3", None),
    ],
)
def test_a_number_that_is_refused_has_a_line_that_can_make_it(test: str, says: str | None, tmp_path: Path) -> None:
    """Where the condition says that it is not finite, and nothing else."""
    file = tmp_path / "train.py"
    file.write_text(PROGRAM.replace("{test}", test), encoding="utf-8")
    snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, argv=("train.py",), environment={}, step=3)
    found = refused_loss(snapshot, [PythonFrame(function="train", file=str(file), line=10)])
    assert (found[0] if found is not None else None) == says


LOADED = """
import math, sys
class Tiles:
    def __getitem__(self, n):
        tile = self.tiles[n]
        return {first}
class Others:
    def __getitem__(self, n):
        return self.tiles[n] / self.tiles[n].std()
def collate(items):
    return torch.stack(items) / items[0].norm()
def train(model, loader):
    for n, (x, y) in enumerate(loader):
        value = criterion(model(x), y).item()
        if not math.isfinite(value):
            sys.exit(1)
Others()
train(Net(), DataLoader(Tiles(){more}))
"""


@pytest.mark.parametrize(
    ("first", "more", "says"),
    [
        ("(tile - tile.mean()) / tile.std()", "", "; line 6 divides by `tile.std()`, which may be 0"),
        ("tile", ", collate_fn=collate", "; line 11 divides by `items[0].norm()`, which may be 0"),
        ("(tile - tile.mean()) / (tile.std() + 1e-6)", "", ""),
        ("tile", "", ""),  # the loader has none of the other dataset
    ],
)
def test_what_the_dataset_returns_can_make_it(first: str, more: str, says: str, tmp_path: Path) -> None:
    """Where no line from the model to the loss can: only of the dataset that the loss is computed from."""
    file = tmp_path / "train.py"
    file.write_text(LOADED.replace("{first}", first).replace("{more}", more), encoding="utf-8")
    snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9, argv=("train.py",), environment={}, step=3)
    stack = [
        PythonFrame(function="train", file=str(file), line=16),
        PythonFrame(function="<module>", file=str(file), line=18),
    ]
    found = refused_loss(snapshot, stack)
    assert found is not None and found[0] == f"`value` is not finite{says}"
