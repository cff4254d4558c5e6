"""A branch on the rank around the line of new_group() that other ranks left out; other branches are not told of."""

from __future__ import annotations

import ast
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.collectives.group_branches import group_branch_words, own_list_words
from pytracer.analyze.rules.collectives import group_mismatch
from pytracer.decode.types.snapshot import PythonFrame as Frame
from pytracer.report.job import PythonFrame

CRITICS = """class Trainer:
    def __init__(self, rank, deep):
        self.is_critic = rank in CRITIC_RANKS
        self.deep = make(deep)
        if {test}:
            self.group = dist.new_group(CRITIC_RANKS)
        {other}
        self.all = dist.new_group()
"""


def said(text: str, line: int, elsewhere: int, makers: tuple[int, ...] = (0, 1), others: tuple[int, ...] = (2,)) -> str:
    made, other = (PythonFrame(file="train.py", line=at, function="setup") for at in (line, elsewhere))
    return group_branch_words(ast.parse(text), made, other, makers, others) or ""


def of_critics(test: str, other: str = "pass", **ranks: tuple[int, ...]) -> str:
    text = CRITICS.format(test=test, other=other)
    return said(text, 6, len(text.splitlines()), **ranks)


@pytest.mark.parametrize(
    "test",
    [
        "self.is_critic",
        "rank in CRITIC_RANKS",
        "dist.get_rank() < 2",
        "int(os.environ['RANK']) < 2",
        "self.is_critic and args.critics",
        "dist.is_initialized() and rank != 2",
    ],
)
def test_branch_on_the_rank_is_named(test: str) -> None:
    told = of_critics(test)
    assert f"6 in setup makes one below `if {test}:` (line 5): take it out of that branch" in told


def test_variable_of_the_rank_is_one_too() -> None:
    text = "def setup(rank):\n    mine = rank in CRITICS\n    if mine:\n        new_group(CRITICS)\n    new_group()\n"
    assert "below `if mine:` (line 3)" in said(text, 4, 5)
    assert not said(text.replace("rank in CRITICS", "load(CRITICS)"), 4, 5)
    assert not said(text.replace("    if", "    mine = ask(0)\n    if"), 5, 6)


@pytest.mark.parametrize(
    "test",
    [
        "args.critics",
        "self.deep",
        "self.all is None",
        "rank is not None",
        "local_rank != -1 and self.deep",
        "self.is_critic and self.deep",
        "lora_rank > 4",
        "num_ranks > 2",
        "__name__ == '__main__'",
    ],
)
def test_branch_that_asks_for_something_else_is_no_reason(test: str) -> None:
    assert not of_critics(test)


def test_module_that_is_run_is_no_reason() -> None:
    text = "if __name__ == '__main__':\n    for ranks in lists:\n        new_group(ranks)\n    new_group()\n"
    assert not said(text, 3, 4)


def test_else_is_named_as_such() -> None:
    text = "def setup(rank):\n    if rank == 2:\n        a()\n    else:\n        new_group([0, 1])\n    new_group()\n"
    assert "makes one in the `else` of `if rank == 2:` (line 2)" in said(text, 5, 6)
    text = (
        "def setup(rank):\n    if rank == 2:\n        a()\n    elif rank < 2:\n        new_group(x)\n    new_group()\n"
    )
    assert "makes one below `elif rank < 2:` (line 4)" in said(text, 5, 6)


def test_group_that_the_others_make_on_the_other_side_is_no_reason() -> None:
    """In another order, or by another function that is called there."""
    assert not of_critics("self.is_critic", "else: self.group = dist.new_group(CRITIC_RANKS)")
    text = "def f(rank):\n    if rank < 2:\n        new_group(a)\n    else:\n        b()\n        c()\n"
    assert not said(text, 3, 5)
    text = "def f(rank):\n    if rank < 1:\n        new_group(a)\n    elif rank < 2:\n        new_group(b)\n    c()\n"
    assert not said(text, 5, 6)


def test_one_line_of_both_is_no_reason() -> None:
    assert not said(CRITICS.format(test="self.is_critic", other="pass"), 6, 6)


@pytest.mark.parametrize(
    ("test", "makers", "others", "is_told"),
    [
        ("rank == 0", (0,), (1, 2), True),
        ("rank != 2", (0, 1), (2,), True),
        ("rank == 0", (0, 1), (2,), False),
        ("rank != 0", (0, 1), (2,), False),
        ("rank == 1", (0,), (1,), False),
    ],
)
def test_branch_for_one_rank_explains_that_rank_only(
    test: str, makers: tuple[int, ...], others: tuple[int, ...], is_told: bool
) -> None:
    assert bool(of_critics(test, makers=makers, others=others)) == is_told


def advice(folder: Path, made: dict[int, list[tuple[tuple[int, ...], int]]], source: str | None = None) -> str:
    """What is advised of a difference in the first group. `made`: by rank, each with the line that made it."""
    file = folder / "train.py"
    file.write_text(source or CRITICS.format(test="self.is_critic", other="pass"), encoding="utf-8")
    groups = {
        rank: [
            group_mismatch._Group(ranks, None, Frame(function="setup", file=str(file), line=line))
            for ranks, line in items
        ]
        for rank, items in made.items()
    }
    snapshot = SimpleNamespace(argv=(), created_wall_ns=time.time_ns() + 10**9)
    processes = [SimpleNamespace(rank=rank, role="rank", snapshot=snapshot) for rank in made]
    job: Any = SimpleNamespace(views=[SimpleNamespace(process=process) for process in processes])
    sides = group_mismatch._sides_at(groups, 0)
    return group_mismatch._advice(job, group_mismatch._Sides(groups, 0, sides))


def test_only_a_group_that_one_side_left_out_has_a_branch(tmp_path: Path) -> None:
    """Where each made one that the other did not, the order is wrong: no branch is blamed."""
    pair, every, other = ((0, 1), 6), ((0, 1, 2), 8), ((1, 2), 8)
    assert "below `if self.is_critic:` (line 5)" in advice(tmp_path, {0: [pair, every], 1: [pair, every], 2: [every]})
    assert advice(tmp_path, {0: [pair], 1: [pair], 2: [other]}) == group_mismatch._SAME_ORDER
    assert advice(tmp_path, {0: [pair, other], 1: [pair, other], 2: [other, pair]}) == group_mismatch._SAME_ORDER


def test_list_with_the_rank_in_it_is_named() -> None:
    """Found by a twin: each rank made the groups of its own pairs, and was told of the order only."""
    text = "def pairs(rank, peer):\n    return dist.new_group(sorted([rank, peer]))\n"
    told = own_list_words(ast.parse(text), PythonFrame(file="train.py", line=2, function="pairs")) or ""
    assert "The list of ranks at train.py:2 in pairs (`sorted([rank, peer])`) has the rank in it" in told
    for other in ("[0, 1]", "MEMBERS", "row"):
        tree = ast.parse(text.replace("sorted([rank, peer])", other))
        assert own_list_words(tree, PythonFrame(file="train.py", line=2, function="pairs")) is None


def test_list_of_a_rank_that_is_counted_up_is_that_of_all_ranks() -> None:
    """Found by reviewing: `rank` was the variable of a loop over all ranks."""
    text = "def pairs(size):\n    for rank in range(0, size, 2):\n        dist.new_group([rank, rank + 1])\n"
    assert own_list_words(ast.parse(text), PythonFrame(file="train.py", line=3, function="pairs")) is None


def test_list_with_the_rank_in_it_is_not_named_of_ranks_that_made_groups_of_others(tmp_path: Path) -> None:
    """Found by reviewing: a function got the first rank of each pair, on all ranks."""
    source = "def pair(rank):\n    return dist.new_group([rank, rank + 1])\n"
    one, other = ((0, 1), 2), ((2, 3), 2)
    said = advice(tmp_path, {0: [one, other], 1: [one, other], 2: [other, one], 3: [other, one]}, source)
    assert said == group_mismatch._SAME_ORDER
    assert "has the rank in it" in advice(tmp_path, {0: [one], 1: [one], 2: [other], 3: [other]}, source)
