"""Steps and collectives of each process over time, and who waits for whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.assemble.timeline import LEAST_PER_PROCESS, MOST_IN_ALL, MOST_PER_PROCESS, kept_per_process
from pytracer.analyze.engine import build_report
from pytracer.report import job as r
from tests.support import scenarios as s
from tests.support.collectives import Ranks, call
from tests.support.report_schema import validated


def of_rank(report: r.Report, rank: int) -> r.Timeline:
    found = next(item.timeline for item in report.processes or [] if item.rank == rank)
    assert found is not None
    return found


def test_steps_and_collectives_are_in_the_order_of_time(tmp_path: Path) -> None:
    """With the moments at which each was called, started and completed, and what it worked on."""
    report = validated(build_report(s.use_after_free(tmp_path)))
    found = of_rank(report, 1)
    assert [item.step for item in found.steps or []] == [0, 1]
    first, last = found.collectives or []
    assert (first.op, first.state, last.state) == ("all_reduce", "completed", "started")
    assert first.scheduled is not None and first.completed == first.scheduled + 1_000_000
    assert (last.completed, last.what) == (None, "DDP bucket 0 of model (generation 1)")
    times = [item.time or 0 for item in found.steps or []]
    assert times == sorted(times) and times[0] < first.scheduled < times[1]


def test_ranks_that_wait_and_those_they_wait_for_are_in_the_report(tmp_path: Path) -> None:
    """Rank 2 never enters the second collective."""
    ranks = Ranks(4)
    ranks.everybody(call())
    for number in (0, 1, 3):
        ranks.calls(number, call(state="started"), first=2)
        ranks.raised(number)
    ranks.done(2)
    report = validated(build_report(ranks.job(tmp_path)))
    (wait,) = (report.collectives.waits if report.collectives else None) or []
    assert (wait.ranks, wait.targets, wait.op, wait.sequence_nr) == ([0, 1, 3], [2], "all_reduce", 2)
    called = [item.scheduled for item in of_rank(report, 0).collectives or []]
    assert wait.since == called[-1]


def test_ranks_that_wait_in_a_ring_are_a_cycle(tmp_path: Path) -> None:
    """Each receives from the next one, and nobody sends."""
    ranks = Ranks(3)
    for number in range(3):
        ranks.calls(number, call("recv_", state="started", peer=(number + 1) % 3, tag=0, flags=1))
        ranks.raised(number)
    report = validated(build_report(ranks.job(tmp_path)))
    assert report.collectives is not None and report.collectives.cycles == [[0, 1, 2]]
    assert [item.targets for item in report.collectives.waits or []] == [[1], [2], [0]]


def test_a_job_in_which_everybody_came_has_no_waits(tmp_path: Path) -> None:
    """The look-alike: the ranks are in the same collective."""
    ranks = Ranks(2)
    ranks.everybody(call(), call(state="started"))
    report = build_report(ranks.job(tmp_path))
    assert report.collectives is not None and report.collectives.waits == []


def test_long_histories_are_cut_at_their_beginning(tmp_path: Path) -> None:
    """The last ones are kept, and the others counted."""
    ranks = Ranks(2)
    ranks.everybody(*[call() for _ in range(MOST_PER_PROCESS + 5)])
    found = of_rank(build_report(ranks.job(tmp_path)), 0)
    assert len(found.collectives or []) == MOST_PER_PROCESS
    assert found.collectives_left_out == 5 and (found.collectives or [])[-1].sequence_nr == MOST_PER_PROCESS + 5


@pytest.mark.parametrize("processes", [1, 8, 64, 1024, 100_000])
def test_size_of_all_timelines_is_bounded(processes: int) -> None:
    """Few processes keep more of their past than many do."""
    kept = kept_per_process(processes)
    assert LEAST_PER_PROCESS <= kept <= MOST_PER_PROCESS
    assert kept * processes <= max(MOST_IN_ALL, LEAST_PER_PROCESS * processes)
