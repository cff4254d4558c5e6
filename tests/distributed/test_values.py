"""Ranks that stood still until somebody ended them: what their variables were tells why they parted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conditions import needs_native
from tests.support.crash import Ended, torchrun, traced_run

pytestmark = needs_native

PROGRAM = """\
import os, signal, sys, threading
import torch
import torch.distributed as dist

class Patience:
    def __init__(self, limit):
        self.limit = limit
        self.bad = 0
        self.best = float("inf")

    def take(self, loss):
        self.bad = self.bad + 1 if loss >= self.best else 0
        self.best = min(self.best, loss)

def limits():
    return {"train": int(os.environ["RANK"]) * -27 + 30, "eval": 4, "missing": None}

def train():
    stopper = Patience(limits()["train"])
    share = torch.ones(4)
    for step in range(200):
        dist.all_reduce(share)
        stopper.take(1.0)
        if stopper.bad >= stopper.limit:
            break
    dist.broadcast(share, src=0)

def validate():
    options = limits()
    rounds, ready, rate = options["train"], options["missing"] is None, 0.5
    for step in range(6):
        dist.all_reduce(torch.ones(4))
    if ready and rounds > 10:
        dist.broadcast(torch.ones(3), src=0)
    dist.all_gather([torch.ones(2), torch.ones(2)], torch.ones(2))

class Settings:
    def __init__(self):
        self.spread = os.environ["RANK"] == "0"

class Node:
    def __init__(self):
        self.settings = Settings()

    def share(self):
        dist.all_reduce(torch.ones(4))

    def report(self):
        if self.settings.spread:
            dist.broadcast(torch.ones(2), src=0)

    def train(self):
        for step in range(40):
            self.share()
            if step == 5:
                self.report()

def settings():
    Node().train()

def give_up():
    os.kill(os.getppid(), signal.SIGTERM)

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    threading.Timer(5, give_up).start()
{"train": train, "validate": validate, "settings": settings}[sys.argv[1]]()
"""


def stood(way: str, run: Path, options: tuple[str, ...] = ()) -> Ended:
    """Both ranks stand in collectives that do not go together, until torchrun is asked to end."""
    program = run.parent / "parts.py"
    program.write_text(PROGRAM, encoding="utf-8")
    return traced_run(*torchrun(program, way), run=run, options=options)


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(PROGRAM.splitlines(), 1) if text in line)


@pytest.mark.timeout(120)
def test_value_by_which_a_rank_left_a_loop_is_told(run: Path) -> None:
    """And the line that makes it."""
    verdict = stood("train", run).report.verdict
    assert verdict is not None
    assert verdict.class_ in ("collective-mismatch", "hang"), verdict.summary
    told = f"by line {line_of('if stopper.bad')} (`if stopper.bad >= stopper.limit:`): "
    told += "`stopper.limit` is 3 on rank 1 and 30 on rank 0"
    assert told in (verdict.summary or ""), (verdict.summary, verdict.advice)
    assert f"it comes from line {line_of('return {')}" in (verdict.advice or ""), verdict.advice


@pytest.mark.timeout(120)
def test_value_by_which_a_rank_passed_a_call_by_is_told(run: Path) -> None:
    """Of the condition with two variables the one that differs."""
    verdict = stood("validate", run).report.verdict
    assert verdict is not None
    told = f"`rounds` is 30 on rank 0 and 3 on rank 1, which line {line_of('if ready and')}"
    assert told in (verdict.summary or ""), (verdict.summary, verdict.advice)


@pytest.mark.timeout(120)
def test_value_that_nothing_sets_later_is_told_of_a_function_that_the_other_rank_has_left(run: Path) -> None:
    """It was the same when the condition asked for it."""
    verdict = stood("settings", run).report.verdict
    assert verdict is not None
    told = f"`self.settings.spread` is True on rank 0 and False on rank 1, which line {line_of('if self.settings')}"
    assert told in (verdict.summary or ""), (verdict.summary, verdict.advice)


@pytest.mark.timeout(120)
def test_no_values_leaves_them_out(run: Path) -> None:
    """`--no-values` holds for these as well."""
    done = stood("validate", run, ("--no-values",))
    ends = [process.snapshot.ending for process in done.job.processes if process.rank is not None]
    assert [end.values for end in ends if end is not None] == [(), ()]
    assert done.report.verdict is not None
    assert "is 30 on rank 0" not in f"{done.report.verdict.summary}{done.report.verdict.advice}"
