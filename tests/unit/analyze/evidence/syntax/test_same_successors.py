"""Loops whose next item follows from the last one alone; the look-alikes count, draw on, or ask what changes."""

from __future__ import annotations

import ast
import textwrap

import pytest

from pytracer.analyze.evidence.syntax.same_successors import same_again
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.evidence.syntax.unbounded import Reason

HEAD = """\
import random, torch
class Rows:
    def __init__(self):
        self.n = 5
        self.rng = random.Random(1)
"""
LOOP = """\
def __getitem__(self, i):
    {before}
    while True:
        row = self.load(i)
        if {test}:
            return row
        {then}
"""
HELPERS = """\
def load(self, i):
    return {loaded}
def other(self, i):
    {first}
    return ({other}) % self.n
"""


def reason(
    then: str = "i = (i + 1) % self.n",
    *,
    before: str = "pass",
    test: str = "row is not None",
    loaded: str = "self.rows[i]",
    first: str = "pass",
    other: str = "i + 2",
) -> Reason | None:
    """Of the loop of a dataset that takes another item for one that it refuses."""
    body = LOOP.format(before=before, test=test, then=textwrap.indent(then, "        ").lstrip())
    text = HEAD + textwrap.indent(body + HELPERS.format(loaded=loaded, first=first, other=other), "    ")
    tree = ast.parse(text)
    loop = next(item for item in ast.walk(tree) if isinstance(item, ast.While))
    return same_again(tree, scope_of(tree, loop.lineno), loop)


@pytest.mark.parametrize(
    ("then", "words"),
    [
        ("i = (i + 1) % self.n", "the next `i` (line 12: `i = (i + 1) % self.n`) follows from the last one alone"),
        ("i += 2\ni %= self.n", "the next `i` (line 12: `i += 2`) follows from the last one alone"),
        ("i = self.other(i)", "the next `i` (line 12: `i = self.other(i)`) follows from the last one alone"),
        ("rng = random.Random(i * 7)\ni = rng.randrange(self.n)", "line 12 seeds the generator anew for each"),
        (
            "random.seed(i)\ni = random.randint(0, self.n)",
            "line 12 seeds the generator anew for each (`random.seed(i)`)",
        ),
        ("g = torch.Generator().manual_seed(i)\ni = torch.randint(0, 9, (1,), generator=g).item()", "line 12 seeds"),
        ("r = random.Random(i)\nj = i\nwhile j == i:\n    j = r.randrange(9)\ni = j", "the next `i` follows"),
    ],
)
def test_next_item_that_follows_from_the_last_one_may_go_round(then: str, words: str) -> None:
    """By a step around the length, a method of the program, or a generator that each pass seeds anew."""
    found = reason(then)
    assert found is not None
    assert words in found.words
    assert "once one comes again that was refused, the same ones follow it for ever" in found.words
    assert not found.sure
    assert "those items out in advance that line 10 (`row is not None`) does not accept" in found.advice


@pytest.mark.parametrize(
    "changed",
    [
        {"then": "i = self.rng.randrange(self.n)"},
        {"before": "rng = random.Random(i)", "then": "i = rng.randrange(self.n)"},
        {"then": "i = random.randrange(self.n)"},
        {"before": "t = 0", "then": "t += 1\ni = random.Random(i + t).randrange(self.n)"},
        {"before": "t = 0", "then": "t += 1\ni = (i + 1) % self.n", "test": "row is not None or t > 9"},
        {"before": "seen = set()", "then": "seen.add(i)\ni = (i + 1) % self.n", "test": "row is not None or i in seen"},
        {"loaded": "torch.rand(3) * i", "test": "row.mean() > 0.5"},
        {"loaded": "next(self.stream) + i"},
        {"then": "i = i + 1"},
        {"then": "i = self.other(i)", "first": "self.step += 1", "other": "i + self.step"},
        {"loaded": "self.queues[i]", "test": "not row.empty()"},
        {"loaded": "self.workers[i]", "test": "not row.busy"},
        {"loaded": "self.transform(self.rows[i])"},
        {"before": "first = i", "then": "i = (i + 1) % self.n\nif i == first:\n    raise IndexError"},
        {"loaded": "self.model(self.rows[i])", "test": "row.item() < 0.1"},
    ],
    ids=[
        "own generator",
        "before",
        "unseeded",
        "tries in the seed",
        "counted",
        "seen",
        "drawn",
        "stream",
        "on",
        "step",
        "queues",
        "workers",
        "transform",
        "once around",
        "training",
    ],
)
def test_what_goes_on_by_itself_is_no_circle(changed: dict[str, str]) -> None:
    """A generator that was seeded before, a counter, a set of those that were tried, a sample that is drawn anew."""
    assert reason(**changed) is None
