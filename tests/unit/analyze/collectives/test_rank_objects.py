"""Conditions that ask an object which was made with something that depends on the rank."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from pytracer.analyze.collectives.rank_branches import asks_rank
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.report.job import Report
from tests.support.deaths import advice, summary
from tests.unit.analyze.rules.test_parting import reported

PROGRAM = """{0}
class Bar:
    def __init__(self, total, disable=False, step=1):
        self.total, self.disable, self.n = total, disable, 0
        self.step = step
    def update(self):
        {1}
        self.n += 1
    def due(self):
        return self.n % 10 == 9
    @property
    def done(self):
        return self.n >= self.total
def main(loader, rank):
    bar = {2}
    for batch in loader:
        loss = step(batch)
        bar.update()
        if {3}:
            save(loss)
"""
WAY = [("main", 20)], [("main", 17)]
GUARD = "if self.disable: return"
OWN = "Bar(len(loader), disable=rank != 0)"
MADE = "line 15 makes `bar` with `disable=rank != 0`"
ADDS = "line 8 (`self.n += 1`) adds to it only behind `if self.disable:` (line 7)"


def asked(run: Path, test: str, made: str = OWN, guard: str = GUARD, imports: str = "import tqdm") -> Report:
    """Rank 0 is below the condition, and rank 1 passed it by."""
    return reported(run, PROGRAM.format(imports, guard, made, test), *WAY, 3)


@pytest.mark.parametrize(
    ("test", "name"),
    [
        ("bar.n and bar.n % 10 == 0", "bar.n"),
        ("bar.due()", "bar.due()"),
        ("bar.done", "bar.done"),
    ],
)
def test_object_that_counts_on_one_rank_only(test: str, name: str, run: Path) -> None:
    """Its attribute, a method and a property: with the line that makes it, and the one that counts."""
    report = asked(run, test)
    assert f"; `{name}` of line 19 (`if {test}:`) differs between ranks, as {MADE}: {ADDS}." in summary(report)
    said = advice(report)
    assert f"and {ADDS}: ask for a number that all ranks count alike, a variable of the loop" in said
    assert said.endswith(f"instead of `{name}`; or let line 8 run on all ranks.")
    assert "take it out" not in said


@pytest.mark.parametrize(
    ("imports", "made"),
    [
        ("from tqdm.auto import tqdm", "tqdm(total=9, disable=rank != 0)"),
        ("import tqdm", "tqdm.trange(9, disable=not is_main_process())"),
        ("from tqdm import tqdm", "tqdm(loader, disable=not accelerator.is_local_main_process)"),
    ],
)
def test_disabled_bar_of_tqdm(imports: str, made: str, run: Path) -> None:
    """It counts nothing."""
    report = asked(run, "bar.n % 10 == 0", made, imports=imports)
    assert "where a bar of tqdm is disabled, its `n` stays as it was." in summary(report)
    assert "ask for a number that all ranks count alike" in advice(report)


@pytest.mark.parametrize(
    "options",
    [
        {"test": "bar.n % 10 == 0", "guard": "if self.disable: hide()"},
        {"test": "bar.n % 10 == 0", "made": "Bar(len(loader), disable=quiet)"},
        {"test": "bar.total > 9"},
        {"test": "bar.n % 10 == 0", "made": "Bar(total=9, step=2)"},
        {"test": "bar.total > 9", "made": "tqdm(loader, disable=rank != 0)", "imports": "from tqdm import tqdm"},
        {"test": "bar.n % 10 == 0", "made": "track(loader, disable=rank != 0)", "imports": "from rich import track"},
    ],
    ids=["counts-always", "by-an-option", "other-attribute", "no-rank", "attribute-of-tqdm", "other-library"],
)
def test_object_whose_number_does_not_depend_on_the_rank(options: dict[str, str], run: Path) -> None:
    """The look-alikes; nor is it a branch on the rank."""
    report = asked(run, **options)
    assert "differs between ranks" not in summary(report)
    assert "take it out of that branch" not in advice(report)
    assert "makes `bar`" not in advice(report)


def test_object_that_holds_a_flag_of_the_rank(run: Path) -> None:
    """It is a branch on the rank: the call belongs out of it."""
    report = asked(run, "not bar.disable")
    assert f"as {MADE}: its `disable` is that." in summary(report)
    assert "take the call out of that branch and call it on all ranks" in advice(report)


@pytest.mark.parametrize(
    ("test", "expected"),
    [("bar.n", False), ("bar.disable", True), ("bar", True), ("bar.n and bar.disable", True), ("bar.total", False)],
)
def test_condition_on_an_object_is_on_the_rank_where_it_asks_what_it_was_given(test: str, expected: bool) -> None:
    """What it counts says nothing by itself."""
    tree = ast.parse(PROGRAM.format("", GUARD, OWN, test))
    (branch, _), *_ = deciding_ifs(tree, 20)
    assert asks_rank(tree, branch) is expected


RECORD = """from dataclasses import dataclass
@dataclass
class Meter:
    every: int
    shown: bool = False
    seen: int = 0
    def add(self, value):
        if self.shown:
            print(value)
            self.seen += 1
def main(loader, rank):
    meter = Meter(10, {0})
    for batch in loader:
        meter.add(step(batch))
        if meter.seen == 7:
            save(meter)
"""


@pytest.mark.parametrize(("shown", "named"), [("rank == 0", True), ("shown=rank == 0", True), ("True", False)])
def test_dataclass_that_counts_on_one_rank_only(shown: str, named: bool, run: Path) -> None:
    """Its fields are what it is made with."""
    report = reported(run, RECORD.format(shown), [("main", 16)], [("main", 14)], 3)
    words = "line 12 makes `meter` with `shown=rank == 0`: line 10 (`self.seen += 1`) adds to it only below"
    assert (words in summary(report)) is named
