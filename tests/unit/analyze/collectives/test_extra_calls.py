"""A call that one rank made more, and that met another one of the same operation: where the ranks went apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import CLOSED, Ranks
from tests.support.deaths import advice, finding, summary
from tests.support.scenarios import TORCH, program_in
from tests.support.synth import Frame

Line = tuple[str, int]  # a function, and its line
IN_TORCH: Frame = ("barrier", f"{TORCH}/distributed/distributed_c10d.py", 5349)


def reported(
    run: Path, source: str, calls: Sequence[Sequence[Line]], ways: Sequence[Sequence[Line]], op: str
) -> Report:
    """Each rank called barriers from these lines; rank 0 failed in its last one, which for rank 1 was `op`.

    `ways`: the stacks of both ends, the innermost first; rank 1 without one had ended well.
    """
    program = str(program_in(run, source))
    job = Ranks(2)
    for rank, lines in enumerate(calls):
        box, group = job.boxes[rank], job.groups[rank]["0"]
        for number, (function, line) in enumerate(lines, 1):
            last = number == len(lines) and bool(ways[rank])
            by = box.site(IN_TORCH, (function, program, line))
            box.collective(
                op if last and rank else "barrier",
                group=group,
                by=by,
                sequence_nr=number,
                state="failed" if last else "completed",
                sizes=[1],
                nbytes=1,
            )
        if ways[rank]:
            stack = [IN_TORCH, *((function, program, line) for function, line in ways[rank])]
            box.at(7000).exception("RuntimeError", CLOSED, stack).exit(1)
            job.endings[rank] = {"exit_code": 1}
        else:
            job.done(rank)
    return build_report(job.job(run))


SAVES = """import torch.distributed as dist
def save(name):
    write(name)
    dist.barrier()
def finish():
    dist.barrier()
def main(epochs, rank):
    for epoch in range(epochs):
        train()
        save(epoch)
    {0}
        save("last")
    finish()
main(3, dist.get_rank())
"""
SAVE, TRAIN, FINISH, MAIN = ("save", 4), ("main", 9), ("finish", 6), ("main", 13)
EPOCH = [TRAIN, SAVE]


def saved(run: Path, test: str, epoch: Sequence[Line] = EPOCH, source: str = SAVES) -> Report:
    """Rank 0 saved once more than rank 1, which had ended."""
    calls = [*epoch, *epoch]
    return reported(
        run, source.format(test), ([*calls, SAVE, FINISH], [*calls, FINISH]), ([FINISH, MAIN], []), "barrier"
    )


@pytest.mark.parametrize("test", ["if rank == 0:", "if is_main_process():", "if not rank != 0:"])
def test_branch_on_the_rank_around_the_caller_of_an_extra_barrier(test: str, run: Path) -> None:
    """The barrier of the other rank that it met is named, and what to do about the branch; nothing of batches."""
    report = saved(run, test)
    said = summary(report)
    assert said.startswith(
        f"Rank 0 made a call that rank 1 did not: barrier at program.py:4 in save, as line 12 calls save() below "
        f"`{test}` (line 11). It met the barrier of rank 1 at line 6 (collective 5 of the default group), so that"
    )
    assert said.endswith("rank 1 finished and left while rank 0 waited in barrier #6 at program.py:6 in finish.")
    assert f"program.py:12 in main is below `{test}` (line 11)" in advice(report)
    assert "take it out of that branch, call it on all ranks" in advice(report)
    found = finding(report, "uneven-inputs")
    assert found is not None and not found.missing and "batches" not in advice(report)


def test_function_of_torch_with_the_name_of_the_saving_one(run: Path) -> None:
    """`torch.save()` below a branch on the rank calls no barrier."""
    source = SAVES.replace("    write(name)", "    if rank == 0: torch.save(state, name)").replace(
        "import torch.d", "import torch, torch.d"
    )
    assert "as line 12 calls save() below `if rank == 0:` (line 11)" in summary(
        saved(run, "if rank == 0:", source=source)
    )


@pytest.mark.parametrize("test", ["if rank == 1:", "if rank > 0:", "if args.keep:"])
def test_branch_that_does_not_lead_that_rank_there(test: str, run: Path) -> None:
    """The look-alikes: of the other rank, and of no rank. Both ways to the line are named, and no number of batches."""
    report = saved(run, test)
    assert "below" not in summary(report)
    assert advice(report).startswith("Find out what led rank 0 alone to line 4 (save is called at line 10 and line 12)")
    assert "join()" not in advice(report)


@pytest.mark.parametrize(("loop", "named"), [("range(epochs)", True), ("epochs", False)])
def test_round_more_of_a_loop_that_only_saves(loop: str, named: bool, run: Path) -> None:
    """The look-alike: the same line again and again may be a round more, unless all ranks have the same number."""
    report = saved(run, "if rank == 0:", [SAVE, SAVE], SAVES.replace("range(epochs)", loop))
    assert ("as line 12 calls save() below" in summary(report)) is named
    assert named or "rank 1 had left the loop of line 8 after 4 calls from line 4" in summary(report)


def test_calls_that_are_not_the_same_but_for_one(run: Path) -> None:
    """The look-alike: each rank has a line of its own for one barrier, and rank 0 a round more."""
    calls = [TRAIN, TRAIN]
    report = reported(run, SAVES, ([*calls, SAVE, TRAIN, TRAIN], [*calls, FINISH, TRAIN]), ([TRAIN], []), "barrier")
    assert "did not: barrier" not in summary(report)
    assert "Count the rounds" in advice(report)


def test_mismatch_behind_an_extra_call(run: Path) -> None:
    """The ranks were apart before another operation showed it."""
    calls = [*EPOCH, *EPOCH]
    source = SAVES.format("if rank == 0:") + "dist.all_reduce(x)\n"
    report = reported(
        run,
        source,
        ([*calls, SAVE, FINISH], [*calls, FINISH, ("<module>", 15)]),
        ([FINISH, MAIN], [("<module>", 15)]),
        "allreduce_",
    )
    assert (
        "; before, rank 0 made a call that rank 1 did not: barrier at program.py:4 in save, as line 12 calls save() "
        "below `if rank == 0:` (line 11); it met the barrier of rank 1 at line 6" in summary(report)
    )
    assert advice(report).startswith("program.py:12 in main is below `if rank == 0:` (line 11)")


STEPS = """import torch.distributed as dist
def step(loss):
    if loss > 3:
        skip()
    else:
        dist.barrier()
    dist.barrier()
for batch in data:
    step(run(batch))
"""


def test_condition_that_skipped_one_of_two_calls_in_a_round(run: Path) -> None:
    """Both ranks go on alike; the rank that ended is the one that left out the call."""
    first, second = ("step", 6), ("step", 7)
    calls = [first, second, first, second]
    rest = [first, second]
    report = reported(
        run, STEPS, ([*calls, *rest, *rest], [*calls, second, *rest]), ([second, ("<module>", 9)], []), "barrier"
    )
    assert "; line 3 (`if loss > 3:`) skipped the barrier on rank 1. It met the barrier of rank 1 at line 7" in summary(
        report
    )
    assert advice(report).startswith("Line 3 (`if loss > 3:`) decides about the call")
