"""Loops that two ranks begin or end at different numbers, and why these differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import TIME_OUT, Ranks, call
from tests.support.deaths import advice, finding, summary
from tests.support.scenarios import TORCH, program_in

C10D = ("broadcast", f"{TORCH}/distributed/distributed_c10d.py", 3000)
Values = Mapping[str, str]
PROGRAM = """\
def folder():
    if dist.get_rank() != 0:
        return None
    return "runs"
def restore(path):
    if path is None:
        return 0
    return torch.load(path)["epoch"] + 1
def main(epochs, rank):
    {start}
    for epoch in range(start, epochs):
        for batch in loader:
            step(batch)
    save()
main(6, dist.get_rank())
"""
HEAD = "the loop of line 11 (`for epoch in range(start, epochs):`)"
THREE_AND_SIX: tuple[Values, Values] = ({"start": "3", "epochs": "6"}, {"start": "0", "epochs": "6"})


def reported(run: Path, source: str, values: tuple[Values, Values], lines: tuple[int, int] = (14, 13)) -> Report:
    """Rank 0 behind the loop and rank 1 in it, in their only collectives, with these variables of main()."""
    program = str(program_in(run, source))
    job = Ranks(2)
    for box, name, line, held in zip(job.boxes, ("broadcast_", "allreduce_"), lines, values, strict=True):
        stack = [C10D, ("main", program, line), ("<module>", program, source.count("\n"))]
        given = dict(call(name, state="failed"))
        given.pop("name")
        given.pop("line")
        box.collective(name, group=job.groups[0]["0"], by=box.site(stack[0], stack[1]), sequence_nr=1, **given)
        own = [{"name": name, "value": value} for name, value in held.items()]
        box.at(7000).exception("RuntimeError", TIME_OUT, stack, variables=own).exit(1)
    job.endings = {0: {"exit_code": 1}, 1: {"exit_code": 1}}
    return build_report(job.job(run))


def program(start: str) -> str:
    return PROGRAM.format(start=start)


@pytest.mark.parametrize(
    ("start", "why"),
    [
        ("start = restore(folder())", ": it depends on the rank at line 2 (`dist.get_rank() != 0`)."),
        ("start = last() if rank == 0 else 0", ": it depends on the rank at line 10 (`last() if rank == 0 else 0`)."),
        ("start = torch.load(f'{rank}.pt')['epoch']", ": it depends on the rank at line 10 (`f'{rank}.pt'`)."),
        ("start = torch.load('state.pt')['epoch']", "."),
        ("start = first()", "."),
    ],
)
def test_rounds_of_both_and_where_the_bound_depends_on_the_rank_are_told(start: str, why: str, run: Path) -> None:
    """Through a function with two returns, a choice, a file of each rank; nothing is said of what is not known."""
    report = reported(run, program(start), THREE_AND_SIX)
    assert summary(report).endswith(f"{HEAD} has 3 rounds on rank 0 and 6 on rank 1, as `start` is 3 and 0 there{why}")
    assert advice(report).startswith("Give all ranks the same `start` before line 11 (")
    assert "drop or pad" not in advice(report)
    found = finding(report, "collective-mismatch")
    assert found is not None and not found.missing


def test_attribute_that_a_method_sets_on_one_rank_is_followed(run: Path) -> None:
    """In another method than that of the loop."""
    report = reported(run, METHODS, ({"self.first": "2", "n": "5"}, {"self.first": "0", "n": "5"}), (9, 8))
    assert "as `self.first` is 2 and 0 there: it depends on the rank at line 4 (`self.rank == 0`)." in summary(report)


METHODS = """\
class Trainer:
    first = 0
    def resume(self):
        if self.rank == 0:
            self.first = load()
    def main(self, n):
        for epoch in range(self.first, n):
            step()
        save()
Trainer().main(5)
"""


@pytest.mark.parametrize(
    ("start", "values"),
    [
        ("start = restore(folder())", ({"start": "2", "epochs": "6"}, {"start": "2", "epochs": "6"})),
        ("start = rank * 5", ({"start": "0", "epochs": "5"}, {"start": "5", "epochs": "10"})),
        ("start = restore(folder())", ({"start": "0", "epochs": "6"}, {"start": "3", "epochs": "6"})),
        ("start = restore(folder())", ({}, {})),
        ("start = rank * 5", ({"start": "0"}, {"start": "5"})),
    ],
)
def test_loop_without_fewer_rounds_on_the_rank_behind_it_is_no_reason(
    start: str, values: tuple[Values, Values], run: Path
) -> None:
    """The look-alikes: equal bounds, parts of one length, more rounds on the rank that left, not all recorded."""
    report = reported(run, program(start), values)
    assert "rounds on rank" not in summary(report)
    assert "Give all ranks the same `start`" not in advice(report)


def test_bound_that_changes_behind_the_loop_is_not_compared(run: Path) -> None:
    """What it was at the end is not what the loop began with."""
    source = program("start = first()").replace("    save()", "    start = save(); sync()")
    assert "rounds on rank" not in summary(reported(run, source, THREE_AND_SIX))


COUNTS = """\
def main(total, rank):
    step = first(rank)
    while step < total:
        step += 1
        work(step)
    save()
main(20, dist.get_rank())
"""


@pytest.mark.parametrize(
    ("begin", "step", "told"), [("first(rank)", "17", True), ("first(rank)", "20", False), ("0", "17", False)]
)
def test_what_counts_the_rounds_of_a_while_is_compared(begin: str, step: str, told: bool, run: Path) -> None:
    """Where it may begin elsewhere by the rank; else it may count rounds without a collective."""
    values: tuple[Values, Values] = ({"step": "20", "total": "20"}, {"step": step, "total": "20"})
    said = summary(reported(run, COUNTS.replace("first(rank)", begin), values, (6, 5)))
    assert ("(`while step < total:`) is 20 on rank 0 and 17 on rank 1 after as many collectives" in said) is told


def test_bound_that_is_the_same_is_not_sent_for(run: Path) -> None:
    """The rounds of an inner loop differ: its data is the reason, and not where the outer one began."""
    held = ({"start": "2", "epochs": "6"}, {"start": "2", "epochs": "6"})
    assert "begins at another `start`" not in advice(reported(run, program("start = restore(folder())"), held))


def test_loop_with_as_many_rounds_on_both_is_not_sent_for(run: Path) -> None:
    """Of parts of one length it is the `if` inside that left out a call."""
    source = program("start = rank * 5").replace("for batch in loader:", "if epoch != 3:")
    held = ({"start": "0", "epochs": "5"}, {"start": "5", "epochs": "10"})
    said = advice(reported(run, source, held))
    assert "more rounds" not in said
