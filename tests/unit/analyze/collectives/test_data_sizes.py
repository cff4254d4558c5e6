"""Tensors that are sized by what a rank has seen, by the source of the program."""

from __future__ import annotations

import ast
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.collectives.data_sizes import DataSize, data_size
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.report.job import PythonFrame

METHOD = """\
class Confusion:
    def compute(self):
        pairs = torch.cat(self.pairs)
        k = {size}
        return torch.bincount(pairs[:, 0] * k + pairs[:, 1], minlength=k * k).view(k, k)
def evaluate(loader):
    conf = Confusion()
    table = conf.compute()
    dist.all_reduce(table)
"""


def found(folder: Path, source: str, name: str = "table") -> DataSize | None:
    """Of the variable that the last line passes."""
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    snapshot: Any = SimpleNamespace(created_wall_ns=time.time_ns() + 10**9)
    line = len(source.splitlines())
    back = Slice(snapshot, [PythonFrame(function="evaluate", file=str(file), line=line)])
    spot = back.spot(0)
    assert spot is not None
    return data_size(back, ast.parse(name, mode="eval").body, spot)


@pytest.mark.parametrize(
    ("size", "largest"),
    [
        ("int(pairs.max()) + 1", True),
        ("pairs.max().item() + 1", True),
        ("int(torch.max(pairs)) + 1", True),
        ("len(set(pairs.tolist()))", False),
        ("pairs.unique().numel()", False),
    ],
)
def test_size_by_a_ranks_own_values_is_named_with_its_line(size: str, largest: bool, tmp_path: Path) -> None:
    item = found(tmp_path, METHOD.format(size=size))
    assert item is not None and (item.name, item.largest) == ("k", largest)
    assert item.words.startswith(f"it comes from line 4 (`k = {size}`), the ")
    assert item.advice.startswith("The size comes from line 4") and "Give `k` one value on all ranks" in item.advice


@pytest.mark.parametrize("size", ["9", "max(2, self.classes)", "pairs.max(dim=1)", "self.classes + 1", "len(pairs)"])
def test_size_that_is_no_value_of_the_data_is_left_alone(size: str, tmp_path: Path) -> None:
    assert found(tmp_path, METHOD.format(size=size)) is None


def test_value_that_is_no_size_is_left_alone(tmp_path: Path) -> None:
    """It scales the tensor, whose shape it does not change."""
    source = "def evaluate(x):\n    k = int(x.max()) + 1\n    table = (x / k).view(3, 3)\n    dist.all_reduce(table)\n"
    assert found(tmp_path, source) is None


def test_of_two_sizes_none_is_told(tmp_path: Path) -> None:
    source = "def evaluate(a, b):\n    n = int(a.max())\n    m = int(b.max())\n    table = torch.zeros(n, m)\n"
    assert found(tmp_path, source + "    dist.all_reduce(table)\n") is None


def test_size_that_the_ranks_agree_on_is_left_alone(tmp_path: Path) -> None:
    source = METHOD.format(size="int(pairs.max()) + 1")
    agreed = source.replace(
        "        return torch.bincount",
        "        k = agree(k)\n        dist.all_reduce(k, op=MAX)\n        return torch.bincount",
    )
    assert found(tmp_path, agreed.replace("        k = agree(k)\n", "")) is None
