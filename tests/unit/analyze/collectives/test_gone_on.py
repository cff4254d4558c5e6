"""A rank that had left the loop in which another one waits for it, by the stacks of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import Job
from tests.support import scenarios as s
from tests.support.collectives import TIME_OUT, Ranks, call
from tests.support.deaths import advice, summary, verdict
from tests.unit.analyze.collectives.test_rank_branches import REDUCES

SOURCE = """import os, time
BEST = "best.pt"
def fit(model, rank):
    for epoch in range(60):
        model.train()
        val = evaluate(model)
        if stopper.step(val):
            break
    if rank == 0:
        os.rename(BEST + ".part", BEST)
def final(rank):
    while not os.path.exists(BEST):
        time.sleep(0.5)
def evaluate(model):
    return torch.stack(model.losses()).mean().item()
def main(model, rank):
    fit(model, rank)
    final(rank)
main(1, 2)
"""
WAITS, POLLS = [("fit", 5), ("main", 17), ("<module>", 19)], [("final", 13), ("main", 18), ("<module>", 19)]
LEFT = "Rank 1 had left the loop of line 4, probably by line 7 (`if stopper.step(val):`), by a `val` of its own"
WRITES = "rank 0 writes `BEST`, for which rank 1 waits, only behind that loop (line 10)"


def said(
    run: Path, source: str = SOURCE, there: Sequence[tuple[str, int]] = POLLS, waits: Sequence[tuple[str, int]] = WAITS
) -> str:
    """Rank 0 waits in a collective of the loop; SIGTERM finds rank 1 asleep elsewhere."""
    program = str(s.program_in(run, source))
    job = Ranks(2)
    job.everybody(call(line=30))
    job.calls(0, call(state="failed", line=44), first=2)
    stack = [REDUCES, ("step", s.SCRIPT, 44), *((name, program, line) for name, line in waits)]
    job.boxes[0].at(7000).exception("RuntimeError", TIME_OUT, stack).exit(1)
    job.endings[0] = {"exit_code": 1}
    job.terminated(1)
    python = [(name, program, line) for name, line in there]
    job.boxes[1].at(7900).signal_seen(15, 99).crash(0, code=0, state=6, python=python, native=[(s.PYTHON, 0x1000)])
    report = build_report(asleep(job.job(run), 1))
    assert verdict(report)[0] == "missing-rank"
    return f"{summary(report)} {advice(report)}"


def asleep(job: Job, rank: int) -> Job:
    """With this rank's native stack in time.sleep()."""
    own = next(item for item in job.processes if item.rank == rank)
    assert own.snapshot.ending is not None
    frames = tuple(replace(frame, function="time_sleep") for frame in own.snapshot.ending.native_stack)
    snapshot = replace(own.snapshot, ending=replace(own.snapshot.ending, native_stack=frames))
    return replace(
        job, processes=tuple(replace(own, snapshot=snapshot) if item is own else item for item in job.processes)
    )


def test_the_loop_that_it_left_comes_first_with_what_ends_it(run: Path) -> None:
    found = said(run)
    assert found.startswith(f"In program.py, {LEFT[0].lower()}{LEFT[1:]}; {WRITES}. Rank 1 did not enter all_reduce")
    assert "all_reduce() it there" in found
    assert f"{WRITES[0].upper()}{WRITES[1:]}: dist.barrier() on all ranks waits for it as well." in found


def test_of_another_file_or_one_that_was_written_before_nothing_is_said(run: Path) -> None:
    other = SOURCE.replace("os.path.exists(BEST)", 'os.path.exists("other")')
    assert "only behind that loop" not in said(run, other)
    before = SOURCE.replace("        model.train()", '        os.rename("new", BEST)').replace(
        'BEST + ".part", BEST', "LAST, OLD"
    )
    assert "only behind that loop" not in said(run, before)


def test_it_may_be_behind_the_loop_in_the_same_call(run: Path) -> None:
    assert LEFT[1:] in said(run, SOURCE, [("fit", 10), ("main", 17), ("<module>", 19)])


AGAIN = SOURCE.replace("    fit(model, rank)\n    final(rank)\n", "    while True: fit(model, rank); final(rank)\n\n")


@pytest.mark.parametrize(
    ("source", "there"),
    [
        (AGAIN, [("final", 13), ("main", 17), ("<module>", 19)]),
        (SOURCE, [("setup", 3), ("main", 16), ("<module>", 19)]),
        (SOURCE.replace("            break", "            stopper.tell()"), POLLS),
    ],
    ids=["comes again", "is before it", "nothing ends it"],
)
def test_a_rank_that_may_still_come_had_not_left_it(source: str, there: Sequence[tuple[str, int]], run: Path) -> None:
    assert "had left the loop" not in said(run, source, there)
