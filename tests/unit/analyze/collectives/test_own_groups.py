"""A barrier of all ranks, which only the members of a smaller group are in."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support.collectives import TIME_OUT, Ranks, call
from tests.support.deaths import advice


def barrier_of(run: Path, members: list[int], *, between: bool = False) -> str:
    """Ranks 0 and 1 are in a barrier of all, rank 2 in an all_reduce; they had used a group of `members` before."""
    job = Ranks(3)
    job.group("1", members, "validators", line=10)
    job.everybody(call(line=15))
    for rank in members:
        job.calls(rank, call(line=21), group="1")
    if between:
        job.everybody(call(line=17), first=2)
    number = 3 if between else 2
    for rank in (0, 1):
        job.calls(rank, call("barrier", state="failed", line=26), first=number)
    job.calls(2, call(state="failed", line=15), first=number)
    for rank in range(3):
        job.raised(rank, TIME_OUT, at=7000 + rank)
    return advice(build_report(job.job(run)))


def test_barrier_is_to_get_the_group_that_was_used_just_before(run: Path) -> None:
    """It has exactly the ranks that are in the barrier."""
    said = barrier_of(run, [0, 1])
    assert "used just before, at line 21 (all_reduce): if only they are to meet there, call barrier(group=" in said


@pytest.mark.parametrize(("members", "between"), [([0, 1, 2], False), ([0, 1], True)])
def test_barrier_of_others_or_later_gets_no_group(members: list[int], between: bool, run: Path) -> None:
    """The look-alikes: a group with another rank, and a collective of all in between."""
    assert "used just before" not in barrier_of(run, members, between=between)
