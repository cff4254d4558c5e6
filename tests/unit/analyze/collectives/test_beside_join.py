"""A rank in join() of DistributedDataParallel, and collectives of the program's own beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support.collectives import Ranks
from tests.support.deaths import advice, summary
from tests.support.scenarios import TORCH, program_in

PROGRAM = """\
import torch.distributed as dist
def train(model, loader):
    with {0}:
        for x in loader:
            model(x).backward()
            {1}
def mean(loss):
    dist.all_reduce(loss)
"""
C10D, JOIN = f"{TORCH}/distributed/distributed_c10d.py", f"{TORCH}/distributed/algorithms/join.py"


def reported(run: Path, manager: str = "model.join()", own: str = "mean(loss)") -> Report:
    """Rank 0 is in its third all_reduce of line 8; rank 1, after two, in the one that join() of line 3 calls."""
    program = str(program_in(run, PROGRAM.format(manager, own)))
    job = Ranks(2)
    for number, box in enumerate(job.boxes):
        lines = [8, 8, 8] if number == 0 else [8, 8, 3]
        for place, line in enumerate(lines, 1):
            inner = ("_get_num_nonjoined_procs", JOIN, 286) if line == 3 else ("all_reduce", C10D, 3252)
            by = box.site(inner, ("train" if line == 3 else "mean", program, line))
            box.collective(
                "gloo:all_reduce", group=job.groups[number]["0"], by=by, sequence_nr=place,
                state="completed" if place < 3 else "started", nbytes=4 if line == 3 else 16,
            )  # fmt: skip
        stack = [inner, ("train", program, lines[-1])]
        box.at(60_000).crash(signal=15, code=0, sender_pid=100, python=stack)
    job.terminated(0, 1)
    return build_report(job.job(run, ended_at=60_010))


def test_join_answers_no_collective_of_the_program(run: Path) -> None:
    """The rank without batches is on its way out of join(); the other has one round more."""
    report = reported(run)
    assert "rank 1 had no more batches and was in join() of line 3" in summary(report)
    assert "and not the collective at program.py:8 in mean, which rank 0 went on to call" in advice(report)


@pytest.mark.parametrize("manager", ["torch.no_grad()", "timer('train')"])
def test_other_context_managers_are_no_join(manager: str, run: Path) -> None:
    """What the ranks called is compared as ever."""
    assert "join()" not in summary(reported(run, manager))
