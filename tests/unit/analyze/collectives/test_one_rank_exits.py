"""One rank leaves a loop below a branch on the rank, and so a call that the others make in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import TIME_OUT, Ranks
from tests.support.deaths import advice, summary
from tests.support.scenarios import TORCH, program_in
from tests.support.synth import Frame

PROGRAM = """\
def fit(model, loader):
    stop = torch.zeros(1)
    if rank == 0:
        plateau = Plateau(2)
    for epoch in range(40):
        dist.all_reduce(total)
        if rank == 0:
            if plateau.update(validate(model)):
                stop.fill_(1)
                break
        dist.broadcast(stop, src=0)
        if stop.item():
            break
    dist.barrier()
fit(model, loader)
"""
IN_LOOP, BEHIND = [("fit", 11)], [("fit", 14)]
LEFT = "rank 0 left the loop of line 5 by the `break` of line 10, below `if rank == 0:` (line 7)"


def reported(
    run: Path,
    source: str = PROGRAM,
    before: Sequence[int] = (6, 11, 6),
    ways: Sequence[Sequence[tuple[str, int]]] = (BEHIND, IN_LOOP),
) -> Report:
    """Both ranks called from the lines of `before`, then rank 0 a barrier, and rank 1 another collective."""
    program = str(program_in(run, source))
    job = Ranks(2)
    in_torch: Frame = ("call", f"{TORCH}/distributed/distributed_c10d.py", 3252)
    for rank, way in enumerate(ways):
        box, group = job.boxes[rank], job.groups[rank]["0"]
        own: list[Frame] = [(function, program, line) for function, line in way]
        lines: list[Frame] = [*(("fit", program, line) for line in before), own[0]]
        for number, line in enumerate(lines, 1):
            ends = number == len(lines)
            op = "barrier" if ends and rank == 0 else "broadcast_" if ends else "allreduce_"
            by = box.site(in_torch, line)
            state = "failed" if ends else "completed"
            box.collective(op, group=group, by=by, sequence_nr=number, state=state, sizes=[1], nbytes=4)
        last = source.count("\n")
        box.at(7000).exception("RuntimeError", TIME_OUT, [in_torch, *own, ("<module>", program, last)]).exit(1)
        job.endings[rank] = {"exit_code": 1}
    return build_report(job.job(run))


def test_break_of_one_rank_before_a_call_is_named(run: Path) -> None:
    """The variable of the condition is that of one rank by design, and what ends the loop on all is there already."""
    report = reported(run)
    assert summary(report).endswith(f"; {LEFT}, before the broadcast of line 11.")
    assert "Remove that `break`: line 12 (`if stop.item():`) ends the loop on all ranks, behind" in advice(report)
    assert "plateau" not in summary(report) + advice(report)


def test_flag_is_advised_where_nothing_ends_the_loop_on_all_ranks(run: Path) -> None:
    """Also of a rank that left at the end of the round before, where all have as many rounds."""
    source = PROGRAM.replace("        if stop.item():\n            break\n", "")
    ways = ([("fit", 12)], IN_LOOP)
    assert "Set a flag there instead, all_reduce() the flag (MAX)" in advice(reported(run, source, ways=ways))
    source = source.replace("        dist.broadcast(stop, src=0)\n", "")
    report = reported(run, source, (6, 6), ([("fit", 11)], [("fit", 6)]))
    assert summary(report).endswith(f"; {LEFT}.")


def test_return_of_one_rank_is_named_too(run: Path) -> None:
    """It leaves the function."""
    source = PROGRAM.replace("                break\n        dist", "                return\n        dist")
    source = source.replace("    dist.barrier()\nfit(model, loader)\n", "fit(model, loader)\ndist.barrier()\n")
    report = reported(run, source, ways=([("<module>", 15)], [("fit", 11), ("<module>", 14)]))
    assert "by the `return` of line 10, below `if rank == 0:` (line 7)" in summary(report)


@pytest.mark.parametrize(
    ("old", "new", "before"),
    [
        ("        if rank == 0:\n            if", "        if ready:\n            if", (6, 11, 6)),
        ("        if rank == 0:\n            if", "        if rank == 1:\n            if", (6, 11, 6)),
        ("        dist.all_reduce(total)\n", "        if dist.all_reduce(total) or late(): break\n", (6, 11, 6)),
        ("", "", (6, 11)),
        ("                break\n", "                [x for x in y]\n", (6, 11, 6)),
        (
            "                stop.fill_(1)\n                break\n",
            "                for x in y:\n                    break\n",
            (6, 11, 6),
        ),
    ],
    ids=["no rank", "another rank", "another way out", "in a later round", "no break", "of an inner loop"],
)
def test_what_may_have_ended_the_loop_otherwise_is_not_said_to_be_that(
    old: str, new: str, before: Sequence[int], run: Path
) -> None:
    """The look-alikes."""
    assert "left the loop of line 5 by the `break` of line 10" not in summary(
        reported(run, PROGRAM.replace(old, new), before)
    )
