"""Tensors of 0 elements by a filter: the line that keeps no row, and what goes into the same layer unfiltered."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.operators import node_operands as operands
from pytracer.analyze.evidence.operators.filtered import Filtered, filtered
from pytracer.decode.types.snapshot import PythonFrame

TRAIN = """def collate(rows):
    items = torch.cat([row[0] for row in rows])
    offsets = starts([len(row[0]) for row in rows])
    target = torch.tensor([row[1] for row in rows])
    labeled = ~torch.isnan(target)
    return items, offsets[labeled], target[labeled]
class Model(nn.Module):
    def __init__(self):
        self.bag = nn.EmbeddingBag(500, 16)
    def forward(self, items, offsets):
        return self.bag(items, offsets)
def main():
    loader = DataLoader(data, batch_size=32, collate_fn=collate)
    model = Model()
    for step, (items, offsets, target) in enumerate(loader):
        loss = (model(items, offsets) - target).sum()
        loss.backward()
"""
STEP = """def step(ids, starts, score):
    starts = starts[score > 0]
    pooled = F.embedding_bag(ids, table, starts)
    pooled.sum().backward()
"""


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operands, "in_engine", lambda view: True)


def found_in(folder: Path, source: str, line: int, *names: str, node: str | None = "EmbeddingBagBackward0") -> Any:
    file = folder / "train.py"
    file.write_text(source, encoding="utf-8")
    function = "main" if "def main" in source else "step"
    crash = SimpleNamespace(node=node, python_stack=(PythonFrame(function, str(file), line),))
    view: Any = SimpleNamespace(
        crash=crash, process=SimpleNamespace(snapshot=SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9))
    )
    given = operands.node_operands(view)
    items: Any = [SimpleNamespace(expression=name, elements=0) for name in names]
    return given, filtered(view, items, given)


def test_collate_function_that_leaves_no_row(tmp_path: Path) -> None:
    given, found = found_in(tmp_path, TRAIN, 17, "offsets")
    assert given is not None and given.names == ("items", "offsets")
    assert isinstance(found, Filtered)
    assert found.summary + found.whole_words == (
        ", as line 6 in collate() keeps only the rows with `labeled` (line 5: `labeled = ~torch.isnan(target)`), and "
        "this batch has none; line 6 does not filter `items`, which `self.bag(items, offsets)` at line 11 gets as well"
    )
    assert found.advice("line 17").startswith(
        "Leave out a batch in which line 6 keeps nothing, before line 16 (`if offsets.numel() == 0: continue`), or"
    )
    assert "out of `items` at line 6 as well" in found.advice("line 17")


def test_filter_in_the_failing_function(tmp_path: Path) -> None:
    given, found = found_in(tmp_path, STEP, 4, "starts")
    assert given is not None and given.names == ("ids", "table", "starts")
    assert found is not None and found.summary == (
        ", as line 2 keeps only the rows with `score > 0`, and there are none"
    )
    assert "before line 3 (`if starts.numel() == 0:`)" in found.advice("line 4")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("offsets[labeled], target", "offsets[order], target"),  # the look-alike: an index, not a condition
        ("offsets[labeled], target", "offsets[1:], target"),
        ("offsets[labeled], target", "offsets, target"),
        (", collate_fn=collate", ""),
        ("    return items", "    if not rows:\n        return None\n    return items"),
    ],
)
def test_without_a_known_filter(tmp_path: Path, old: str, new: str) -> None:
    source = TRAIN.replace(old, new).replace("labeled = ~", "order = torch.argsort(target)\n    labeled = ~")
    line = source[: source.index("loss.backward")].count("\n") + 1
    assert found_in(tmp_path, source, line, "offsets")[1] is None


@pytest.mark.parametrize(
    "items", ["torch.cat([row[0] for row in rows if row[1] == row[1]])", "keep_labeled(rows)[target > 0]"]
)
def test_items_that_are_filtered_too(tmp_path: Path, items: str) -> None:
    source = TRAIN.replace("torch.cat([row[0] for row in rows])", items)
    found = found_in(tmp_path, source, 17, "offsets")[1]
    assert found is not None and not found.whole and "as well" not in found.advice("line 17")


def test_two_layers_of_the_kind_are_not_told_apart(tmp_path: Path) -> None:
    source = TRAIN.replace(
        "return self.bag(items, offsets)", "return self.bag(items, offsets) + self.bag(items, items)"
    )
    assert found_in(tmp_path, source, 17, "offsets")[0] is None


def test_node_of_another_operator(tmp_path: Path) -> None:
    assert found_in(tmp_path, TRAIN, 17, "offsets", node="AddmmBackward0")[0] is None
    assert found_in(tmp_path, TRAIN, 17, "offsets", node=None)[0] is None
