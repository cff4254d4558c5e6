"""A loop over an object of the program's own that one of its methods ends: early stopping by a value of each rank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.deaths import advice, summary
from tests.unit.analyze.collectives.test_one_rank_exits import reported

COUNTER = """\
class Counter:
    def __init__(self, limit):
        self.limit, self.now, self.best = limit, 0, None
    def __iter__(self):
        return self
    def __next__(self):
        if self.now >= self.limit:
            raise StopIteration
        self.now += 1
        return self.now
    def update(self, score):
        if self.best is not None and score < self.best:
            self.now = self.limit
class Brain:
    def __init__(self, rank):
        self.rank, self.counter = rank, Counter(30)
    @property
    def main(self):
        return self.rank == 0
def fit(brain):
    for epoch in brain.counter:
        dist.all_reduce(total)
        if brain.main:
            brain.counter.update(score)
    dist.barrier()
fit(Brain(0))
"""
ALONE = COUNTER.replace("if brain.main:", "if True:")
PATIENCE = """\
class Patience:
    def __init__(self, rounds):
        self.rounds, self.worse = rounds, 0
    def update(self, loss):
        self.worse += loss > 1
    @property
    def should_stop(self):
        return self.worse >= self.rounds
class Epochs:
    def __init__(self, limit, patience):
        self.limit, self.patience = limit, patience
    def __iter__(self):
        for epoch in range(self.limit):
            if self.patience.should_stop:
                return
            yield epoch
def fit(epochs, patience):
    for epoch in epochs:
        dist.all_reduce(total)
        patience.update(measure())
    dist.barrier()
patience = Patience(3)
fit(Epochs(9, patience), patience)
"""
UNSET = COUNTER.replace("            self.now = self.limit\n", "            self.best = score\n")
TWICE = COUNTER.replace("    dist.barrier()\n", "    dist.barrier()\n    brain.counter.update(0)\n")


@pytest.mark.parametrize(
    ("source", "lines", "said", "change"),
    [
        (
            COUNTER,
            (25, 22),
            "line 24 (`brain.counter.update(score)`) calls below `if brain.main:` (line 23) alone",
            "Call",
        ),
        (ALONE, (25, 22), "line 24 (`brain.counter.update(score)`) calls, can end it", "Give update() one value"),
        (PATIENCE, (21, 19), "line 20 (`patience.update(measure())`) calls, can end it", "Give update() one value"),
    ],
)
def test_method_that_ends_the_iteration_is_named(
    source: str, lines: tuple[int, int], said: str, change: str, run: Path
) -> None:
    """With the line that calls it, and the branch on the rank around that."""
    report = reported(run, source, (lines[1],) * 3, ways(*lines))
    assert said in summary(report)
    assert change in advice(report) and "broadcast() the decision" in advice(report)
    assert "drop or pad" not in advice(report)


@pytest.mark.parametrize(("source", "lines"), [(UNSET, (25, 22)), (TWICE, (25, 22))])
def test_iterator_that_no_one_line_ends(source: str, lines: tuple[int, int], run: Path) -> None:
    """A method that does not set what is asked, or that two lines call."""
    assert "can end it" not in summary(reported(run, source, (lines[1],) * 3, ways(*lines)))


def ways(behind: int, inside: int) -> Sequence[Sequence[tuple[str, int]]]:
    """Rank 0 is behind the loop, rank 1 in it."""
    return [("fit", behind)], [("fit", inside)]
