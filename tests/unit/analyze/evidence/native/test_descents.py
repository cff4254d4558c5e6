"""What a function goes down by when it calls itself: a part of its parameter, and the line that makes that deep."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.native.descents import Descent, descent
from pytracer.report.job import PythonFrame

TREE = """class Node:
    def __init__(self, left=None, right=None):
        self.left, self.right = left, right

def chain(words):
    tree = Node()
    for word in words:
        tree = Node(left=Node(), right=tree)
    return tree

def walk(node, other=None):
    {line}
"""


def found(folder: Path, line: str) -> Descent | None:
    file = folder / "train.py"
    file.write_text(TREE.replace("{line}", line), encoding="utf-8")
    snapshot: Any = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    frame = PythonFrame(function="walk", file=str(file), line=12)
    return descent(snapshot, [frame], frame)


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("return join(walk(node.left), walk(node.right))", ("node.left", "node.right")),
        ("return walk(node.right)", ("node.right",)),
    ],
)
def test_each_level_goes_down_by_a_part_of_the_parameter(line: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    """Also by one of two; the loop that puts a node above the last one is where the depth comes from."""
    down = found(tmp_path, line)
    assert down is not None and down.parts == parts
    assert down.clause == f", each time one level down in {' or '.join(f'`{part}`' for part in parts)}"
    assert "line 8 (`tree = Node(left=Node(), right=tree)`) may add a level in each round of its loop" in down.advice


@pytest.mark.parametrize(
    "line",
    ["return walk(node[:2]) + walk(node[2:])", "return walk(node.left, other.right)", "return walk(node)"],
    ids=["two halves", "two parameters", "no part"],
)
def test_other_calls_of_itself_say_nothing_of_a_depth(line: str, tmp_path: Path) -> None:
    assert found(tmp_path, line) is None
