"""A rank that is in a later round of a loop around both, and ranks in the same one."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import TIME_OUT, Ranks, call
from tests.support.deaths import advice, summary
from tests.support.scenarios import TORCH, program_in

PROGRAM = """\
def validate(rows):
    if len(rows) > 0:
        return compute(rows)
def run(rank):
    for epoch in range(3):
        for batch in loader:
            step(batch)
        validate(rows)
run(rank)
"""


def reported(
    run: Path, source: str = PROGRAM, epochs: tuple[str, str] = ("0", "1"), before: tuple[int, int] = (0, 0)
) -> Report:
    """Rank 0 in validate() and rank 1 in the loop over batches; `before`: how often each had called in validate()."""
    program = str(program_in(run, source))
    job = Ranks(2)
    ways = [[("validate", program, 3), ("run", program, 8)], [("run", program, 7)]]
    for rank, (box, way, epoch, times) in enumerate(zip(job.boxes, ways, epochs, before, strict=True)):
        stack = [("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3000), *way, ("<module>", program, 9)]
        sites = [ways[0][0]] * times + [ways[1][0]] * (2 - times) + [way[0]]
        names = ["allreduce_", "allreduce_", "allgather_" if rank == 0 else "allreduce_"]
        for number, (name, site) in enumerate(zip(names, sites, strict=True), 1):
            given = dict(call(name, state="failed" if number == 3 else "completed"))
            given.pop("name")
            given.pop("line")
            by = box.site(stack[0], site)
            box.collective(name, group=job.groups[rank]["0"], by=by, sequence_nr=number, **given)
        own = [{"name": "epoch", "value": epoch}]
        outer = [{"frame": 2, "variables": own}] if rank == 0 else []
        values = own if rank == 1 else []
        box.at(7000).exception("RuntimeError", TIME_OUT, stack, variables=values, outer=outer).exit(1)
    job.endings = {0: {"exit_code": 1}, 1: {"exit_code": 1}}
    return build_report(job.job(run))


def test_rank_in_a_later_round_passed_the_call_by(run: Path) -> None:
    """By the one condition on the way to it; what it asks tells what to do."""
    report = reported(run)
    assert summary(report).endswith(
        "; rank 1 passed the all_gather by, at line 2 (`if len(rows) > 0:`), and was in a later round: `epoch` is 0 on "
        "rank 0 and 1 on rank 1."
    )
    assert "a rank with nothing in it leaves out what the others wait for" in advice(report)
    assert "more rounds" not in advice(report)


@pytest.mark.parametrize(
    ("source", "epochs", "before"),
    [
        (PROGRAM, ("1", "1"), (0, 0)),
        (PROGRAM, ("1", "0"), (0, 0)),
        (PROGRAM.replace("range(3)", "range(start, 3)"), ("0", "1"), (0, 0)),
        (PROGRAM.replace("        validate", "        epoch += rank\n        validate"), ("0", "1"), (0, 0)),
        (PROGRAM, ("0", "1"), (0, 1)),
    ],
    ids=["same round", "earlier round", "begins elsewhere", "counted otherwise", "called it"],
)
def test_other_ranks_did_not_pass_it_by(
    source: str, epochs: tuple[str, str], before: tuple[int, int], run: Path
) -> None:
    """The look-alikes."""
    assert "passed the all_gather by" not in summary(reported(run, source, epochs, before))
