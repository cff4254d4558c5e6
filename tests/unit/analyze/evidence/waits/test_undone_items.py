"""Items of a queue between processes that nobody marks as done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import ended, parent, stopped
from tests.support.synth import Box, Frame

MP = "/usr/lib/python3.11/multiprocessing"
JOIN: list[Frame] = [
    ("Condition.wait", f"{MP}/synchronize.py", 268),
    ("JoinableQueue.join", f"{MP}/queues.py", 331),
]
MAIN = """from worker import index
def build(paths):
    jobs = JoinableQueue()
    jobs.join()
"""
SKIPS = """def index(jobs):
    while True:
        path = jobs.get()
        if path is None:
            jobs.task_done()
            return
        if not path.exists():
            log(path)
            continue
        add(path)
        jobs.task_done()
"""
CAUGHT = """def index(jobs):
    while True:
        path = jobs.get()
        try:
            add(path)
            jobs.task_done()
        except OSError:
            log(path)
"""
FINALLY = """def index(jobs):
    while True:
        path = jobs.get()
        try:
            if not path.exists():
                continue
            add(path)
        finally:
            jobs.task_done()
"""
MARKS = SKIPS.replace("log(path)", "jobs.task_done()")


def worker(pid: int, *, at: int = 5_000, status: int = 0) -> Box:
    return (
        Box(pid=pid, ppid=101).at(100).doing("name", f"multiprocessing process Process-{pid - 101}").at(at).exit(status)
    )


def read(run: Path, source: str, *children: Box) -> Report:
    own, other = run / "train.py", run / "worker.py"
    own.write_text(MAIN)
    other.write_text(source)
    for path in (own, other):
        os.utime(path, (0, 0))
    return ended(run, stopped(parent(), [*JOIN, ("build", str(own), 4)]), *children)


def idle(run: Path, pid: int) -> Box:
    """It waits for its next item, or does something with one."""
    get: list[Frame] = [("Connection._recv", f"{MP}/connection.py", 395), ("Queue.get", f"{MP}/queues.py", 103)]
    return stopped(Box(pid=pid, ppid=101), [*get, ("index", str(run / "worker.py"), 3)])


def test_branch_that_goes_on_without_task_done_is_told(run: Path) -> None:
    """All workers have ended in order."""
    report = read(run, SKIPS, worker(102), worker(103))
    assert verdict(report) == ("hang", "likely")
    told = summary(report)
    assert told.startswith("Process 101 (train.py) waited until every item of the queue `jobs` is done at train.py:4")
    assert "Process-1 (pid 102) and multiprocessing process Process-2 (pid 103) had ended in order" in told
    assert "so nobody calls task_done() any more; the `continue` of worker.py:9 in index leaves an item without" in told
    assert "Call `jobs.task_done()` before the `continue` of worker.py:9, too, below `if not path.exists()`" in advice(
        report
    )


def test_handler_that_goes_on_without_task_done_is_told(run: Path) -> None:
    """The error of a task left it out."""
    report = read(run, CAUGHT, worker(102), idle(run, 103))
    assert "the other children waited for their next item" in summary(report)
    assert "on the way of the `except OSError` of worker.py:7" in advice(report)


@pytest.mark.parametrize("source", [FINALLY, MARKS])
def test_branch_that_marks_its_item_is_not_told(source: str, run: Path) -> None:
    """The look-alikes: `finally` runs on each way, and the branch makes the call itself."""
    report = read(run, source, worker(102))
    assert "leaves an item without" not in summary(report)
    assert "Call `jobs.task_done()`" not in advice(report)


@pytest.mark.parametrize("how", ["at work", "failed", "killed", "with the rest"])
def test_worker_that_may_have_had_an_item_is_not_told_as_done(how: str, run: Path) -> None:
    """The look-alikes."""
    child = {
        "failed": lambda: worker(102, status=1),
        "with the rest": lambda: worker(102, at=59_990),
        "killed": lambda: Box(pid=102, ppid=101).at(5_000),
        "at work": lambda: stopped(Box(pid=102, ppid=101), [("index", str(run / "worker.py"), 10)]),
    }[how]()
    assert "nobody calls task_done()" not in summary(read(run, SKIPS, child))
