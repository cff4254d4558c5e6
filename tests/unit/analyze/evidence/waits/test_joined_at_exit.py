"""A program that an exception ended, and that then waits for its children: multiprocessing joins them."""

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
JOINS: list[Frame] = [
    ("Popen.poll", f"{MP}/popen_fork.py", 27),
    ("BaseProcess.join", f"{MP}/process.py", 149),
    ("_exit_function", f"{MP}/util.py", 357),
]
RECV: list[Frame] = [("Connection._recv", f"{MP}/connection.py", 395)]
MAIN = """from actors import Actors
def main(path):
    log = open(path)
    actors = Actors(2)
    save(actors)
    log.close()
    {ends}
"""
ACTORS = """class Actors:
    def __init__(self, count):
        for _ in range(count):
            Process(target=serve).start()
def serve(conn):
    conn.recv()
"""


def read(run: Path, *, ends: str = "actors.stop()", stack: list[Frame] = JOINS, at: int = 20_000) -> Report:
    own, other = run / "train.py", run / "actors.py"
    own.write_text(MAIN.format(ends=ends))
    other.write_text(ACTORS)
    for path in (own, other):
        os.utime(path, (0, 0))
    box = parent().at(at).exception("OSError", "no room", [("main", str(own), 5)])
    box = box.at(60_000).signal_seen(15, 90, TIMEOUT)
    box.crash(0, code=0, state=EXIT, python=stack, native=[(s.LIBC, 16)])
    fork: list[Frame] = [("Popen._launch", f"{MP}/popen_fork.py", 71), ("Actors.__init__", str(other), 4)]
    inner: list[Frame] = [*RECV, ("serve", str(other), 6), ("BaseProcess._bootstrap", f"{MP}/process.py", 314)]
    return ended(run, box, stopped(Box(pid=102, ppid=101).at(100).mark("begin"), [*inner, *fork]))


def test_exception_after_which_the_end_joins_children_that_wait(run: Path) -> None:
    """How long, whom, what they waited for, and what the exception skipped."""
    report = read(run)
    assert verdict(report) == ("python-exception", "certain")
    told = summary(report)
    assert "its end then stood still for 40.000 s, until a signal ended it: it joined " in told
    assert "which is no daemon and waited for a message from the other end of a connection at actors.py:6" in told
    assert "the exception skipped `actors.stop()` (line 7)" in told
    assert "put `actors.stop()` (line 7) into a `finally`, or start the children (actors.py:4)" in advice(report)


def test_what_else_is_closed_there_has_nothing_to_do_with_them(run: Path) -> None:
    """The look-alike: only an object whose class makes processes ends them."""
    report = read(run, ends="log.flush()")
    assert "its end then stood still" in summary(report)
    assert "skipped" not in summary(report)


@pytest.mark.parametrize(
    ("stack", "at"),
    [([("close", "/usr/lib/python3.11/logging/__init__.py", 9)], 20_000), (JOINS, 59_900)],
)
def test_program_that_was_ending_did_not_stand(stack: list[Frame], at: int, run: Path) -> None:
    """The look-alikes: it did something else, or had just come there."""
    assert "stood still" not in summary(read(run, stack=stack, at=at))
