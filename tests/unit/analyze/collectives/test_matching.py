"""Matching of collectives across ranks: comparison, retention, and what is not concluded."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.analyze.collectives.matching import Matcher, match_job
from pytracer.analyze.collectives.wait_graph import Waiting, find_waiting
from tests.support.collectives import Ranks, call

RANKS, CALLS = 1024, 1000


@pytest.mark.slow
def test_1024_ranks_with_1000_collectives_merge_in_seconds(run: Path) -> None:
    """Only fingerprints are compared, and a number on which all ranks agree is dropped."""
    job = Ranks(1)
    job.everybody(call())
    (process,) = job.job(run).ranks
    (sample,) = process.snapshot.collectives
    items = tuple(replace(sample, sequence_nr=n, number=n, numel=n, sizes=(n,)) for n in range(1, CALLS + 1))
    odd = (*items[:-1], replace(items[-1], dtype="int32"))
    (group,) = process.snapshot.groups
    group = replace(group, ranks=tuple(range(RANKS)), size=RANKS)
    matcher = Matcher()
    began = time.process_time()
    for rank in range(RANKS):
        calls = odd if rank == 700 else items
        matcher.add(
            rank, replace(process, rank=rank, snapshot=replace(process.snapshot, collectives=calls, groups=(group,)))
        )
    (match,) = matcher.result().groups
    assert time.process_time() - began < 10
    assert match.mismatch is not None
    assert (match.mismatch.sequence_nr, match.mismatch.field, match.mismatch.odd) == (CALLS, "dtype", (700,))
    assert len(match.mismatch.variants[0].spans) == 2


def test_what_the_ring_forgot_is_not_absent(run: Path) -> None:
    """Rank 1 kept its last collective only; the others kept all."""
    job = Ranks(3)
    for rank in (0, 2):
        job.calls(rank, call(), call(), call())
    job.calls(1, call(), first=3)
    job.done(0, 1, 2)
    (match,) = match_job(job.job(run)).groups
    assert (match.mismatch, match.missing(), match.unknown) == (None, None, ())


def test_disagreement_that_went_unnoticed_is_followed_to_the_one_that_a_rank_noticed(run: Path) -> None:
    """A broadcast into larger tensors succeeds; the next one, into smaller ones, fails."""
    job = Ranks(2)
    job.calls(0, call("broadcast_", 2, root=0), call("broadcast_", 16, root=0), call("broadcast_", 4, state="failed"))
    job.calls(1, call("broadcast_", 16, root=0), call("broadcast_", 4, root=0, state="started"))
    (match,) = match_job(job.job(run)).groups
    assert match.mismatch is not None
    assert (match.mismatch.sequence_nr, match.mismatch.noticed) == (1, 2)
    assert match.mismatch.succeeded and not match.mismatch.silent
    assert match.missing() is None


def test_disagreement_that_no_rank_noticed_stays_silent(run: Path) -> None:
    """The look-alike: what follows fits, and a rank is missing from it for another reason."""
    job = Ranks(2)
    job.calls(0, call("broadcast_", 2, root=0), call("broadcast_", 4, root=0), call("broadcast_", 4, state="failed"))
    job.calls(1, call("broadcast_", 16, root=0), call("broadcast_", 4, root=0))
    (match,) = match_job(job.job(run)).groups
    assert match.mismatch is not None
    assert match.mismatch.silent
    assert match.missing() == (3, (1,))


def test_first_mismatch_ends_the_comparison(run: Path) -> None:
    """After ranks diverge, no collective is reported as missing."""
    job = Ranks(3)
    for rank in (0, 2):
        job.calls(rank, call(), call(state="failed"), call(state="failed"))
    job.calls(1, call(), call("broadcast_", root=0, state="failed"))
    (match,) = match_job(job.job(run)).groups
    assert match.mismatch is not None and match.mismatch.sequence_nr == 2
    assert match.missing() is None


def test_no_majority_names_nobody(run: Path) -> None:
    """Two against two."""
    job = Ranks(4)
    for rank in range(4):
        job.calls(rank, call(dtype="Int" if rank % 2 else "Float"))
    (match,) = match_job(job.job(run)).groups
    assert match.mismatch is not None and match.mismatch.odd is None


def test_groups_of_one_name_with_other_members_are_not_mixed(run: Path) -> None:
    """c10d numbers names per process: disjoint groups may share one."""
    job = Ranks(4)
    job.group("1", [0, 1], only=[0, 1])
    job.group("1", [2, 3], only=[2, 3])
    for rank in range(4):
        job.calls(rank, call(dtype="Int" if rank > 1 else "Float"), group="1")
    matches = match_job(job.job(run))
    assert [match.ranks for match in matches.groups] == [(0, 1, 2, 3), (0, 1), (2, 3)]
    assert [match.mismatch for match in matches.groups] == [None, None, None]


def waiting_in_two_groups(run: Path, first: list[int], second: list[int]) -> Waiting:
    """Rank 0 has started a collective in the first group, rank 1 one in the second."""
    job = Ranks(1 + max(first + second))
    job.group("1", first)
    job.group("2", second)
    job.everybody(call())
    job.calls(0, call(state="started"), group="1")
    job.calls(1, call(state="started"), group="2")
    read = job.job(run)
    return find_waiting(read, match_job(read))


def test_waiters_are_followed_to_the_sink(run: Path) -> None:
    """Rank 0 waits for 1, rank 1 for 2 in another group, and rank 2 for none."""
    waiting = waiting_in_two_groups(run, [0, 1], [1, 2])
    assert (waiting.sinks, waiting.cycles) == ((2,), ())
    assert [wait.targets for wait in waiting.chain(0)] == [(1,), (2,)]


def test_groups_used_in_another_order_are_a_cycle(run: Path) -> None:
    """Rank 0 is in group 1 and rank 1 in group 2: each waits for the other."""
    waiting = waiting_in_two_groups(run, [0, 1], [0, 1])
    assert (waiting.sinks, waiting.cycles) == ((), ((0, 1),))
