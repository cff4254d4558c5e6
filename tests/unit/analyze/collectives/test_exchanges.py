"""Two lines from which ranks call the two parts of one exchange, and lines that only met by chance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import TIME_OUT, Ranks, call
from tests.support.deaths import advice, summary
from tests.support.scenarios import TORCH, program_in

BRANCHES = """\
def main():
    if dist.get_rank() == 0:
        for name, full in full_sd.items():
            dist.broadcast(full, src=0)
    else:
        for name, target in sharded.items():
            dist.broadcast(target, src=0)
    dist.barrier()
main()
"""
RETURNS = """\
def main():
    if dist.get_rank() != 0:
        for name in wanted:
            dist.broadcast(table[name], src=0)
        return barrier()
    for value in stored.values():
        dist.broadcast(value, src=0)
    dist.barrier()
main()
"""
Way = Sequence[tuple[str, int]]
OPS = {"broadcast": "broadcast_", "barrier": "barrier", "all_reduce": "allreduce_"}


def reported(
    run: Path,
    source: str,
    ways: Sequence[Sequence[tuple[str, Way]]],
    ended: int | None = None,
    held: Sequence[dict[str, str]] = (),
) -> Report:
    """Two ranks with these calls, each an operation and the lines that led to it.

    The last one failed, but of the rank that ended. `held`: variables of rank 0 in its last call.
    """
    program = str(program_in(run, source))
    job = Ranks(2)
    for rank, (box, calls) in enumerate(zip(job.boxes, ways, strict=True)):
        for number, (op, way) in enumerate(calls, 1):
            stack = [(op, f"{TORCH}/distributed/distributed_c10d.py", 3000)]
            stack += [(name, program, line) for name, line in reversed(way)]
            last = number == len(calls) and rank != ended
            given = dict(call(OPS[op], state="failed" if last else "completed"))
            given.pop("name")
            given.pop("line")
            box.collective(
                OPS[op], group=job.groups[rank]["0"], by=box.site(stack[0], stack[1]), sequence_nr=number, **given
            )
        if rank == ended:
            box.at(7000).exit(0)
        else:
            given_values = held if rank == 0 else ()
            box.at(7000).exception("RuntimeError", TIME_OUT, stack, variables=given_values).exit(1)
    job.endings = {rank: {"exit_code": 0 if rank == ended else 1} for rank in (0, 1)}
    return build_report(job.job(run))


def in_main(op: str, *lines: int) -> list[tuple[str, Way]]:
    return [(op, [("<module>", 9), ("main", line)]) for line in lines]


def test_loops_of_two_branches_are_named(run: Path) -> None:
    """And which of the two called once more."""
    report = reported(
        run, BRANCHES, [in_main("broadcast", 4, 4, 4), in_main("broadcast", 7, 7) + in_main("barrier", 8)]
    )
    assert (
        "rank 0 loops over `full_sd.items()` (line 3) and calls at least once more than rank 1, which loops over "
        "`sharded.items()` (line 6)."
    ) in summary(report)
    assert advice(report).startswith("Let both go through the same items in the same order: `full_sd.items()` (line 3)")


def test_number_of_items_is_told_where_it_is_recorded(run: Path) -> None:
    """Of the rank that raised in its loop."""
    ways = [in_main("broadcast", 4, 4, 4), in_main("broadcast", 7, 7) + in_main("barrier", 8)]
    report = reported(run, BRANCHES, ways, held=[{"name": "full_sd", "value": "dict of 3"}])
    assert "rank 0 loops over `full_sd.items()` (line 3; `full_sd` was dict of 3) and calls" in summary(report)


def test_branch_that_returns_is_one_side(run: Path) -> None:
    """The other one has no `else`."""
    report = reported(run, RETURNS, [in_main("broadcast", 7, 7) + in_main("barrier", 8), in_main("broadcast", 4, 4, 4)])
    assert "rank 1 loops over `wanted` (line 3) and calls at least once more than rank 0, which" in summary(report)
    assert "take it out of that branch" not in advice(report)


HELPERS = """\
def send(items):
    for item in items:
        dist.broadcast(item, src=0)
def receive(names):
    while names:
        dist.broadcast(table[names.pop()], src=0)
def main():
    if rank == 0:
        send(stored)
    else:
        receive(wanted)
    dist.barrier()
main()
"""


def test_loops_of_helper_functions_are_named(run: Path) -> None:
    """Of the rank that has gone on, the only call of its helper shows the branch."""
    sends: list[tuple[str, Way]] = [("broadcast", [("<module>", 13), ("main", 9), ("send", 3)])] * 3
    receives: list[tuple[str, Way]] = [("broadcast", [("<module>", 13), ("main", 11), ("receive", 6)])] * 2
    report = reported(run, HELPERS, [sends, [*receives, ("barrier", [("<module>", 13), ("main", 12)])]])
    assert "rank 0 loops over `items` (line 2) and calls at least once more than rank 1, which loops while `names`" in (
        summary(report)
    )


def test_rank_that_ended_is_one_side(run: Path) -> None:
    """It had fewer, and was done."""
    report = reported(run, BRANCHES, [in_main("broadcast", 4, 4, 4), in_main("broadcast", 7, 7)], ended=1)
    assert "had finished; rank 0 loops over `full_sd.items()` (line 3) and calls at least once more" in summary(report)
    assert "DistributedDataParallel" not in advice(report)


def test_loops_over_the_same_may_leave_out_a_round(run: Path) -> None:
    """What skips one is named."""
    source = BRANCHES.replace("sharded.items()", "full_sd.items()").replace(
        "            dist.broadcast(target, src=0)",
        "            if target.frozen: continue\n            dist.broadcast(t)",
    )
    report = reported(run, source, [in_main("broadcast", 4, 4, 4), in_main("broadcast", 8, 8) + in_main("barrier", 9)])
    assert "rank 1 may have left out a call by line 7 (`if target.frozen: continue`)" in summary(report)
    assert "are two parts of one exchange: see whether line 7" in advice(report)


EXTRA = """\
def main():
    if dist.get_rank() == 0:
        for loss in losses:
            dist.all_reduce(loss)
    for grad in grads:
        dist.all_reduce(grad)
    dist.barrier()
main()
"""


def test_call_that_others_answered_by_chance_is_no_part(run: Path) -> None:
    """The look-alike: rank 0 comes to the line of the others as well."""
    report = reported(run, EXTRA, [in_main("all_reduce", 4, 4, 4), in_main("all_reduce", 6, 6) + in_main("barrier", 7)])
    assert "loops over" not in summary(report)


def test_branch_by_data_leads_to_no_part(run: Path) -> None:
    """The look-alike: the ranks took two sides of it, each its own so far."""
    source = BRANCHES.replace("dist.get_rank() == 0", "loss > limit")
    report = reported(run, source, [in_main("broadcast", 4, 4, 4), in_main("broadcast", 7, 7) + in_main("barrier", 8)])
    assert "loops over" not in summary(report)


@pytest.mark.parametrize("extra", [4, 7])
def test_line_that_both_came_to_is_no_part(extra: int, run: Path) -> None:
    """The look-alike: a branch by data, of which each rank has called both sides."""
    first, second = in_main("broadcast", 4, 7, 4), in_main("broadcast", 7, extra) + in_main("barrier", 8)
    assert "loops over" not in summary(reported(run, BRANCHES, [first, second]))
