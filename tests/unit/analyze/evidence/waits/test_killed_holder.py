"""A process that a signal ended inside of a lock of multiprocessing, for which the others wait."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import EXIT, TIMEOUT, ended, parent, stopped
from tests.support.synth import Box, Frame

MP = "/usr/lib/python3.11/multiprocessing"
ENTERS: Frame = ("SemLock.__enter__", f"{MP}/synchronize.py", 95)
GET: list[Frame] = [("Connection._recv", f"{MP}/connection.py", 395), ("Queue.get", f"{MP}/queues.py", 103)]
SOURCE = """class Ring:
    def __init__(self, ctx):
        self.access = ctx.Lock()
        {made}
    def take(self):
        with {held}:
            return level(self.rows)
        {free}
    def put(self, row):
        with self.access:
            self.rows.append(row)
def worker(ring, tasks):
    while True:
        ring.take()
def main():
    watch(workers)
    return results.get()
"""
LEVEL = "def level(wave):\n    while wave.mean() < 0.2:\n        wave = wave * 1.1\n"


def scripts(run: Path, held: str = "self.access", made: str = "pass", free: str = "pass") -> tuple[str, str]:
    """The ring and the function that it calls, in a file of its own."""
    own, other = run / "train.py", run / "gain.py"
    own.write_text(SOURCE.format(held=held, made=made, free=free))
    other.write_text(LEVEL)
    for path in (own, other):
        os.utime(path, (0, 0))
    return str(own), str(other)


def killed(ring: str, level: str, at: int = 5_000, line: int = 7) -> Box:
    """By its parent, while it was in level()."""
    stack: list[Frame] = [("level", level, 3), ("Ring.take", ring, line), ("worker", ring, 14)]
    box = Box(pid=102, ppid=101).at(100).doing("name", "multiprocessing process Process-1").at(at)
    box.signal_seen(15, 101, ["python", "train.py"])
    return box.crash(15, code=0, state=EXIT, python=stack, native=[(s.LIBC, 0x10), (s.PYTHON, 0x20)])


def waits(pid: int, ring: str, line: int = 6, function: str = "Ring.take") -> Box:
    return stopped(Box(pid=pid, ppid=101), [ENTERS, (function, ring, line), ("worker", ring, 14)])


def asks(ring: str, at: int = 5_010) -> Box:
    """Their parent, which the worker's end reached."""
    main = parent()
    main.at(at).wait(102, signal=15)
    return stopped(main, [*GET, ("main", ring, 17)])


def read(run: Path, *boxes: Box) -> Report:
    return ended(run, *boxes, by=TIMEOUT)


def fires(report: Report) -> bool:
    return "held the lock" in summary(report)


def test_lock_that_a_terminated_worker_held_is_why_the_others_wait(run: Path) -> None:
    """What it did in the lock, where, who ended it, and who waits."""
    ring, level = scripts(run)
    report = read(run, asks(ring), killed(ring, level), waits(103, ring))
    assert verdict(report) == ("hang", "likely")
    told = summary(report)
    assert told.startswith(
        "Multiprocessing process Process-1 (pid 102) was at gain.py:3 in level, in the loop `while wave.mean() < 0.2` "
        "(line 2) and held the lock `self.access` (train.py:6) when SIGTERM, sent by "
    )
    assert "waited for it at train.py:6 in Ring.take, and process 101 (train.py) waited for the queue" in told
    assert "Take what takes long out of the lock: train.py:7" in advice(report)
    assert "called `level`, which was at line 3 then" in advice(report)


@pytest.mark.parametrize("how", ["just before", "another lock", "not inside", "held by another", "two of the name"])
def test_lock_that_it_may_not_have_held_is_not_told(how: str, run: Path) -> None:
    """The look-alikes: it was killed with all others, held another lock or none, or a living one is inside of it."""
    held = "self.other" if how == "another lock" else "self.access"
    ring, level = scripts(run, held=held, made="self.mine.access = ctx.Lock()" if how == "two of the name" else "pass")
    victim = killed(ring, level, at=59_900 if how == "just before" else 5_000, line=8 if how == "not inside" else 7)
    rest = [waits(103, ring, 10, "Ring.put")]
    if how == "held by another":
        rest.append(stopped(Box(pid=104, ppid=101), [("Ring.take", ring, 7), ("worker", ring, 14)]))
    report = read(run, asks(ring, 59_910 if how == "just before" else 5_010), victim, *rest)
    assert not fires(report)


def test_other_statement_of_the_same_lock_waits_as_well(run: Path) -> None:
    """By the only name that the file gives a lock."""
    ring, level = scripts(run)
    assert fires(read(run, asks(ring), killed(ring, level), waits(103, ring, 10, "Ring.put")))


def test_place_of_a_killed_process_is_no_wait(run: Path) -> None:
    """The look-alike: nobody waits for its lock. It computed, so nothing says that it waited: its parent did."""
    ring, level = scripts(run)
    report = read(run, killed(ring, level), asks(ring))
    assert not fires(report)
    assert "what it waited for" not in advice(report)
    assert summary(report).startswith("Process 101 (train.py) waited for the queue `results`")
    assert report.verdict is not None
    told = " ".join(report.verdict.evidence or [])
    assert "it had ended multiprocessing process Process-1 (pid 102) itself by SIGTERM" in told
