"""A rank that others wait for, and that waits itself for a DataLoader worker which does not finish a batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support import scenarios as s
from tests.support.collectives import TIME_OUT, Ranks, call
from tests.support.deaths import advice, summary, verdict
from tests.support.synth import Box, Frame
from tests.unit.analyze.collectives.test_rank_branches import REDUCES

WORKER = f"{s.TORCH}/utils/data/_utils/worker.py"
LOADER = f"{s.TORCH}/utils/data/dataloader.py"
SOURCE = """\
class Pairs(Dataset):
    def __getitem__(self, index):
        todo = [index]
        while todo:
            frame = todo.pop()
            {test}:
                todo.append(frame)
                continue
        return frame

def train(loader):
    for batch in loader:
        step(batch)
"""


def reported(run: Path, test: str, line: int) -> str:
    """Rank 0 waits in a collective; rank 1 for its worker, process 301, that SIGTERM finds in a line of its dataset."""
    program = str(s.program_in(run, SOURCE.format(test=test)))
    job = Ranks(2)
    job.everybody(call(line=30))
    job.calls(0, call(state="failed", line=44), first=2)
    stack = [REDUCES, ("step", s.SCRIPT, 44), ("train", program, 13)]
    job.boxes[0].at(27_000).exception("RuntimeError", TIME_OUT, stack).exit(1)
    job.endings[0] = {"exit_code": 1}
    rank = job.boxes[1]
    worker = Box(pid=301, ppid=rank.pid).entry_of_worker(0, "Pairs").at(1_000).sample("2 4,7")
    loading: list[Frame] = [("Pairs.__getitem__", program, line), ("_worker_loop", WORKER, 350)]
    waiting: list[Frame] = [("_BaseDataLoaderIter.__next__", LOADER, 725), ("train", program, 12)]
    for box, python in ((rank, waiting), (worker, loading)):
        box.at(28_000).signal_seen(15, 90, ["torchrun"])
        box.crash(0, code=0, state=6, python=python, native=[(s.PYTHON, 0x1000)])
    job.endings[1] = {"signal": 15}
    job.boxes.append(worker)
    report = build_report(job.job(run, ended_at=30_000))
    assert verdict(report)[0] == "missing-rank"
    return f"{summary(report)} {advice(report)}"


def test_loop_of_the_dataset_that_may_not_end_is_told_with_the_rank(run: Path) -> None:
    """By the worker's stack: the loop, what keeps it going, and what to change."""
    said = reported(run, "if self.depth[frame].sum() == 0", 6)
    assert "DataLoader worker 0 of rank 1 had been loading samples 4,7 for" in said
    assert "in the loop of line 4 (`while todo`) at program.py:6 in Pairs.__getitem__" in said
    assert "line 7 puts `frame` back into `todo`, from which line 5 takes" in said
    assert "Bound the tries of the loop of line 4" in said


@pytest.mark.parametrize(("test", "line"), [("if self.tries(frame) in frame", 6), ("if bad(frame)", 9)])
def test_line_that_is_in_no_such_loop_is_only_looked_at(run: Path, test: str, line: int) -> None:
    """The look-alikes: work that only takes long."""
    said = reported(run, test, line)
    assert "puts `frame` back" not in said and "Bound the tries" not in said
