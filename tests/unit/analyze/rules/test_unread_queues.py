"""standstill: a parent joins children that wait until a queue is read, which the report names."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, evidence, summary, verdict
from tests.support.standing import ended, parent, stopped
from tests.support.synth import Box, Frame

LIB = "/usr/lib/python3.11/multiprocessing"
PROGRAM = """import multiprocessing as mp
def work(out, orders):
    while orders.empty():
        send(out)
def send(out):
    {put}
class Worker(mp.Process):
    def __init__(self, games): self.games = games
    def run(self): self.games.put(1)
def main():
    games = {made}; orders = mp.Queue()
    children = [{child}]
    for child in children:
        child.start()
    orders.put(None)
    for child in children:
        child.join()
    {after}
"""
MADE = "mp.Queue()"
CHILD = "mp.Process(target=work, args=(games, orders))"


def standing(run: Path, **parts: str) -> Report:
    """The parent is in line 17, a child at its end."""
    filled = {"put": "out.put(1)", "made": MADE, "child": CHILD, "after": "pass", **parts}
    script = str(s.program_in(run, PROGRAM.format(**filled)))
    join: list[Frame] = [("Popen.poll", f"{LIB}/popen_fork.py", 27), ("main", script, 17)]
    feeder: list[Frame] = [
        ("Thread.join", "/usr/lib/python3.11/threading.py", 1119),
        ("Queue._finalize_join", f"{LIB}/queues.py", 199),
        ("BaseProcess._bootstrap", f"{LIB}/process.py", 317),
        ("Popen._launch", f"{LIB}/popen_fork.py", 71),
        ("main", script, 14),
    ]
    child = Box(pid=102, ppid=101, created_ns=6_000_000_000).at(-500).versions(torch="2.13.0").at(100).mark("begin")
    return ended(run, stopped(parent(), join), stopped(child, feeder))


def test_queue_that_children_fill_is_named_with_the_join(run: Path) -> None:
    report = standing(run)
    assert verdict(report) == ("hang", "likely")
    assert "which cannot end before all that it put into `games` is read" in summary(report)
    assert "Before `child.join()` (line 17), take from `games` until all children have ended" in advice(report)
    assert "waited at its end until what it had put into `games` is read" in evidence(report)
    assert "program.py:14" not in evidence(report)  # where it was forked


def test_queue_of_a_class_of_processes_is_named(run: Path) -> None:
    """By the attribute that its run() fills, and the argument that it was made of."""
    assert "put into `games` is read" in summary(standing(run, child="Worker(games)"))


def test_queue_that_is_read_after_the_join_is_to_be_read_before(run: Path) -> None:
    said = advice(standing(run, after="games.get()"))
    assert (
        "Line 18 (`games.get()`) comes after the join() of line 17: take all of `games` before `child.join()`" in said
    )


@pytest.mark.parametrize(
    "parts",
    [{"put": "out.put(orders) and orders.put(out)"}, {"made": "mp.Manager().Queue()"}, {"child": "make()"}],
    ids=["two", "of a manager", "unknown target"],
)
def test_queue_is_not_named_where_another_may_be_meant(parts: dict[str, str], run: Path) -> None:
    report = standing(run, **parts)
    assert "which cannot end before its queue is read" in summary(report)
    assert "get() from the queue before join()" in advice(report)


BOUNDED = """import multiprocessing as mp
def play(games):
    games.put(1)
def main():
    games = mp.Queue(8)
    children = [mp.Process(target=play, args=(games,)) for _ in range(3)]
    {start}
    for child in children:
        {inside}
        child.join()
    {after}
def drain(games): {elsewhere}
"""


@pytest.mark.parametrize(
    "parts", [{}, {"after": "games.get()"}, {"inside": "games.get()"}, {"elsewhere": "games.get()"}, {"start": "pass"}]
)
def test_full_queue_that_the_parent_takes_from_before_the_join_only(parts: dict[str, str], run: Path) -> None:
    """The look-alikes: taken from behind the join, beside it, in another function (a thread), and nowhere."""
    filled = {"start": "games.get()", "inside": "pass", "after": "pass", "elsewhere": "pass", **parts}
    script = str(s.program_in(run, BOUNDED.format(**filled)))
    join: list[Frame] = [("Popen.poll", f"{LIB}/popen_fork.py", 27), ("main", script, 10)]
    puts: list[Frame] = [("Queue.put", f"{LIB}/queues.py", 89), ("play", script, 3)]
    works: list[Frame] = [("play", script, 3)]
    children = [
        Box(pid=pid, ppid=101, created_ns=6_000_000_000).at(-500).versions(torch="2.13.0").at(100).mark("begin")
        for pid in (102, 103, 104)
    ]
    stacks = [puts, puts, works]
    own = [stopped(child, stack) for child, stack in zip(children, stacks, strict=True)]
    report = ended(run, stopped(parent(), join), *own)
    assert verdict(report) == ("hang", "possible" if parts else "likely")
    assert "waited for room in the full queue `games` at program.py:3 in play" in summary(report)
    assert ("line 7 takes from it, but only before `child.join()`" in summary(report)) == (not parts)
    assert ("Before `child.join()` (line 10), take from the queue" in advice(report)) == (not parts)
    assert "103 (train.py) waited so as well at program.py:3" in evidence(report)
    assert "104" not in evidence(report)  # at work
