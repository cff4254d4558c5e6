"""Deadlocks that recordings prove, and the look-alikes that may still end."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.collectives.deadlock import deadlock_line, find_deadlock
from pytracer.decode.types.snapshot import Collective, Job
from pytracer.report.live import Deadlock
from tests.support.collectives import Ranks, call
from tests.support.synth import MS

NOW = 60_000 * MS
OPEN: dict[str, Any] = {"state": "started"}


def found(job: Job, *gone: int) -> Deadlock | None:
    return find_deadlock(job, NOW, lambda process: process.rank in gone)


def three() -> Ranks:
    """Three ranks that have done number 1."""
    ranks = Ranks(3)
    ranks.everybody(call())
    return ranks


def changed(job: Job, rank: int, change: Callable[[Collective], Collective]) -> Job:
    """The job with other collectives of one rank."""
    processes = []
    for process in job.processes:
        items = process.snapshot.collectives
        if process.rank == rank:
            items = tuple(change(item) for item in items)
        processes.append(replace(process, snapshot=replace(process.snapshot, collectives=items)))
    return replace(job, processes=tuple(processes))


def test_rank_that_ended_cannot_enter(tmp_path: Path) -> None:
    """Ranks 0 and 1 wait in number 2, which rank 2 never called."""
    ranks = three()
    for rank in (0, 1):
        ranks.calls(rank, call(line=50, **OPEN), first=2)
    job = ranks.job(tmp_path)
    verdict = found(job, 2)
    assert verdict is not None
    assert (verdict.kind, verdict.ranks, verdict.awaited, verdict.sequence_nr) == ("rank-ended", [0, 1], [2], 2)
    line = deadlock_line(verdict)
    assert line.startswith("Rank 2 has ended and never entered all_reduce #2 of the default group, in which ranks 0")
    assert line.endswith("at train.py:50 in step.")


def test_rank_that_is_late_is_no_deadlock(tmp_path: Path) -> None:
    """A checkpoint, a compilation, an evaluation and a data stall look the same: the rank lives."""
    ranks = three()
    for rank in (0, 1):
        ranks.calls(rank, call(**OPEN), first=2)
    assert found(ranks.job(tmp_path)) is None


def test_end_of_a_rank_after_the_job_is_no_deadlock(tmp_path: Path) -> None:
    """All have done number 1, one of them ended."""
    assert found(three().job(tmp_path), 2) is None


@pytest.mark.parametrize("name, root, waiter, deadlock", [
    ("broadcast_", 2, 0, True),  # waits for what the root sends
    ("broadcast_", 1, 0, False),  # the root lives and may come
    ("reduce_", 0, 0, True),  # the root needs every part
    ("reduce_", 1, 0, False),
])  # fmt: skip
def test_rooted_collectives_need_the_root_or_everybody(
    tmp_path: Path, name: str, root: int, waiter: int, deadlock: bool
) -> None:
    """Rank 2 has ended."""
    ranks = three()
    ranks.calls(waiter, call(name, root=root, **OPEN), first=2)
    assert (found(ranks.job(tmp_path), 2) is not None) == deadlock


def test_overwritten_ring_proves_no_absence(tmp_path: Path) -> None:
    """The ended rank's ring holds other groups' collectives only: it may have called this one."""
    ranks = Ranks(2)
    ranks.group("1", [0, 1])
    ranks.calls(0, call(**OPEN))
    ranks.calls(1, call(), call(), group="1")
    job = ranks.job(tmp_path)
    assert found(job, 1) is not None
    assert found(changed(job, 1, lambda item: replace(item, number=item.number + 2000)), 1) is None


def test_ranks_in_different_collectives(tmp_path: Path) -> None:
    """Both are named with their lines."""
    ranks = three()
    for rank in (0, 2):
        ranks.calls(rank, call(line=50, **OPEN), first=2)
    ranks.calls(1, call("broadcast_", root=1, line=60), first=2)
    verdict = found(ranks.job(tmp_path))
    assert verdict is not None
    assert (verdict.kind, verdict.ranks) == ("different-collectives", [0, 1, 2])
    assert "ranks 0 and 2 call all_reduce at train.py:50 in step, rank 1 calls broadcast at train.py:60" in verdict.says


def test_receivers_of_a_root_that_called_it_may_end(tmp_path: Path) -> None:
    """Ranks 0 and 2 wait for the root, rank 1, which has not come; nobody waits for whom disagrees."""
    ranks = three()
    ranks.calls(0, call("broadcast_", root=1, **OPEN), first=2)
    ranks.calls(2, call("reduce_", root=1), first=2)
    assert found(ranks.job(tmp_path)) is None


def test_disagreement_that_ended_is_no_deadlock(tmp_path: Path) -> None:
    """Each operation was done: wrong numbers, but no wait."""
    ranks = three()
    ranks.calls(0, call(), first=2)
    ranks.calls(1, call("broadcast_", root=1), first=2)
    ranks.calls(2, call(), first=2)
    assert found(ranks.job(tmp_path)) is None


def crossed(tmp_path: Path, *, threads: Collection[int] = (), **more: Any) -> Deadlock | None:
    """Rank 0 is in group a, rank 1 in group b; each has been in both before."""
    ranks = Ranks(2)
    for name in ("a", "b"):
        ranks.group(name, [0, 1])
        ranks.everybody(call(), group=name)
    ranks.calls(0, call(line=50, **OPEN, **more), group="a", first=2)
    ranks.calls(1, call(line=60, **OPEN, **more), group="b", first=2)
    job = ranks.job(tmp_path)
    for rank in threads:
        job = changed(job, rank, lambda item: replace(item, tid=item.tid + item.number))
    return found(job)


def test_cycle_of_groups(tmp_path: Path) -> None:
    """Each waits for the other in another group."""
    verdict = crossed(tmp_path)
    assert verdict is not None
    assert (verdict.kind, verdict.ranks) == ("cycle", [0, 1])
    assert verdict.says.startswith("ranks 0 and 1 wait for each other")


def test_asynchronous_operations_are_no_cycle(tmp_path: Path) -> None:
    """Neither rank stands in its call: each may still make the other one."""
    assert crossed(tmp_path, flags=2) is None


def test_rank_with_several_threads_is_in_no_cycle(tmp_path: Path) -> None:
    """Another thread may make the call."""
    assert crossed(tmp_path, threads=(1,)) is None


def test_message_of_a_rank_that_ended(tmp_path: Path) -> None:
    """Rank 0 receives from rank 1, which ended without sending."""
    ranks = Ranks(2)
    ranks.everybody(call())
    ranks.calls(0, call("recv_", peer=1, sequence_nr=1, flags=1, **OPEN), first=2)
    job = ranks.job(tmp_path)
    assert found(job) is None
    verdict = found(job, 1)
    assert verdict is not None
    assert (verdict.kind, verdict.awaited) == ("rank-ended", [1])
