"""The wait graph, from the recordings of a running job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.analyze.collectives.stall import find_waits, live_process
from pytracer.decode.job.merge import load_job
from pytracer.decode.types.devices import CudaStream
from pytracer.decode.types.snapshot import Collective, Group, Process, StatusKind
from pytracer.render.live import render_live
from pytracer.report.live import GroupWait, LiveReport
from tests.support import scenarios as s
from tests.support.synth import MS, write_run

NOW = 10_000 * MS


@pytest.fixture
def ranks(tmp_path: Path) -> list[Process]:
    """Three ranks without collectives, as if they ran."""
    write_run(tmp_path, *(s.rank(number).at(100).mark("step") for number in range(3)))
    group = Group("0", "default_pg", "gloo", 3, 0, (0, 1, 2), 0)
    found = []
    for process in load_job(tmp_path, symbols=False).ranks:
        snapshot = replace(process.snapshot, groups=(group,))
        found.append(replace(process, snapshot=snapshot, status_kind="running", world_size=3))
    return found


def call(number: int, op: str = "all_reduce", state: str = "started", **more: object) -> Collective:
    """One collective of group 0, begun at `number` s."""
    at = number * 1000 * MS
    plain = {"backend": "gloo", "buffer_addr": None, "storage_addr": None, "numel": 4, "nbytes": 16, "sizes": (4,)}
    ended = at + MS if state == "completed" else None
    known = {"dtype": "float32", "tid": 1, "group": "0", "number": number, "started_ns": at, "completed_ns": ended}
    return Collective(**{"sequence_nr": number, "op": op, "state": state, **plain, **known, **more})  # type: ignore[arg-type]


def calling(process: Process, *calls: Collective, status: StatusKind = "running") -> Process:
    return replace(process, snapshot=replace(process.snapshot, collectives=calls), status_kind=status)


def only(processes: list[Process]) -> GroupWait:
    (wait,) = find_waits(processes, NOW)
    return wait


def test_rank_that_has_not_come_is_named(ranks: list[Process]) -> None:
    """Two wait in number 4; the third did number 3 last."""
    job = [calling(rank, call(3, state="completed"), call(4)) for rank in ranks[:2]]
    wait = only([*job, calling(ranks[2], call(3, state="completed"))])
    assert (wait.waiting, wait.not_arrived, wait.ended) == ([0, 1], [2], [])
    assert wait.says == "Ranks 0 and 1 wait in all_reduce number 4 for 6.000 s; rank 2 has not entered it."


def test_rank_that_ended_is_told_from_one_that_is_late(ranks: list[Process]) -> None:
    """A dead rank cannot enter."""
    dead = calling(ranks[2], call(3, state="completed"), status="signaled")
    wait = only([calling(ranks[0], call(4)), calling(ranks[1]), dead])
    assert (wait.not_arrived, wait.ended) == ([1], [2])
    assert wait.says.endswith("rank 1 has not entered it and rank 2 has ended.")


def test_rank_without_a_box_is_not_called_ended(ranks: list[Process]) -> None:
    """It may run on another host, which records into a directory of its own."""
    wait = only([calling(ranks[0], call(1)), calling(ranks[1], call(1))])
    assert (wait.unseen, wait.ended, wait.not_arrived) == ([2], [], [])
    assert wait.says.endswith("rank 2 is not recorded here.")


def test_all_have_come_and_it_still_stands(ranks: list[Process]) -> None:
    """Then no rank is missing."""
    wait = only([calling(rank, call(4)) for rank in ranks])
    assert (wait.not_arrived, wait.ended, wait.disagree) == ([], [], None)
    assert wait.says.endswith("every rank has entered it.")


def test_ranks_that_call_different_operations_are_told(ranks: list[Process]) -> None:
    """Under one number."""
    job = [calling(ranks[0], call(4)), calling(ranks[1], call(4, op="broadcast")), calling(ranks[2], call(4))]
    wait = only(job)
    assert wait.disagree == {"all_reduce": [0, 2], "broadcast": [1]}
    assert "disagree" in wait.says


def test_rank_that_went_on_has_been_there(ranks: list[Process]) -> None:
    """The ring of the faster rank no longer holds number 4."""
    wait = only([calling(ranks[0], call(4)), calling(ranks[1], call(4)), calling(ranks[2], call(9))])
    assert wait.not_arrived == []
    assert wait.done == [2]


def test_point_to_point_is_no_collective(ranks: list[Process]) -> None:
    """It is shown with its process only."""
    job = [calling(ranks[0], call(1, op="recv", point_to_point=True, peer=1)), *ranks[1:]]
    assert find_waits(job, NOW) == []
    shown = live_process(job[0], NOW)
    assert [(item.op, item.peer) for item in shown.open_collectives] == [("recv", 1)]


def test_nothing_open_is_said(ranks: list[Process]) -> None:
    """A report without waits."""
    report = LiveReport(processes=[live_process(calling(rank, call(3, state="completed")), NOW) for rank in ranks])
    text = render_live(report)
    assert text.startswith("No collective is open.\n")
    assert "last done    all_reduce number 3 of group 0, float32[4], completed 6.999 s ago" in text


@pytest.mark.parametrize(("state", "since_s", "said"), [("busy", -40, True), ("busy", 5, False), ("idle", -40, False)])
def test_a_stream_that_was_busy_for_long_is_noted(ranks: list[Process], state: str, since_s: int, said: bool) -> None:
    """A kernel may not end; a stream that has work is no news."""
    streams = (CudaStream(0, 0, state, since_s * 1000 * MS, NOW - 500 * MS, None),)
    shown = live_process(replace(ranks[0], snapshot=replace(ranks[0].snapshot, cuda_streams=streams)), NOW)
    words = "the default stream of cuda:0 was busy whenever it was asked, once a second, for 49.500 s"
    assert (shown.notes == [words]) == said
