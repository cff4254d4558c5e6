"""Collectives of a save that runs in a thread of torch's, and those of the training in the same group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import TIME_OUT, Ranks
from tests.support.deaths import advice, summary
from tests.support.scenarios import TORCH, program_in
from tests.support.synth import Frame

PROGRAM = """\
def train(model):
    for step in range(8):
        model(x).backward()
        if step % 4 == 3:
            dcp.async_save({"model": model.state_dict()}, checkpoint_id=f"out/{step}")
train(model)
"""
POOL: Frame = ("_WorkItem.run", "/usr/lib/python3.11/concurrent/futures/thread.py", 58)


def reported(run: Path, source: str = PROGRAM, *, same_thread: bool = False) -> Report:
    """Rank 0's save came first, and rank 1's backward()."""
    program = str(program_in(run, source))
    job = Ranks(2)
    in_torch: Frame = ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 3252)
    backward: Frame = ("train", program, 3)
    for rank, box in enumerate(job.boxes):
        own = [("allreduce_", backward, 0), ("gather_", POOL, 777)]
        for number, (op, site, tid) in enumerate([own[0], *(own[::-1] if rank == 0 else own)], 1):
            held: dict[str, Any] = {"tid": tid} if tid and not same_thread else {}
            box.collective(
                *(op,),
                group=job.groups[rank]["0"],
                by=box.site(in_torch, site),
                sequence_nr=number,
                state="completed" if number == 1 else "failed",
                sizes=[4],
                nbytes=16,
                root=0 if op == "gather_" else -1,
                **held,
            )
        stack = [in_torch, backward, ("<module>", program, 6)]
        box.at(7000).exception("RuntimeError", TIME_OUT, stack).exit(1)
        job.endings[rank] = {"exit_code": 1}
    return build_report(job.job(run))


def test_save_in_a_thread_shares_the_group_of_the_training(run: Path) -> None:
    """The program's line that saves is named, and not torch's thread."""
    report = reported(run)
    assert (
        "`dcp.async_save()` of line 5 saves in a thread, whose collectives share a process group with those of line 3"
        in summary(report)
    )
    assert "pass `process_group=group` to `dcp.async_save()` at line 5" in advice(report)


@pytest.mark.parametrize(
    "source",
    [
        PROGRAM.replace("checkpoint_id", "process_group=saves, checkpoint_id"),
        PROGRAM.replace("checkpoint_id", "**options, checkpoint_id"),
        PROGRAM.replace("async_save", "save"),
    ],
    ids=["own group", "options", "no thread"],
)
def test_other_threads(source: str, run: Path) -> None:
    """The look-alikes: the thread is not known to be that of a save without a group of its own."""
    assert "saves in a thread" not in summary(reported(run, source))


def test_one_thread(run: Path) -> None:
    """What one thread calls comes in order."""
    assert "saves in a thread" not in summary(reported(run, same_thread=True))
