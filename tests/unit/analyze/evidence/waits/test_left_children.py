"""Programs that have come to their end, where multiprocessing joins children that nobody has told to end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import ended, parent, stopped
from tests.support.synth import Box, Frame

MP = "/usr/lib/python3.11/multiprocessing"
EXIT: list[Frame] = [
    ("Popen.poll", f"{MP}/popen_fork.py", 27),
    ("BaseProcess.join", f"{MP}/process.py", 149),
    ("_exit_function", f"{MP}/util.py", 357),
]
RECV: list[Frame] = [("Connection._recv", f"{MP}/connection.py", 395)]
WORKS: list[Frame] = [("work", "/usr/lib/python3/site-packages/numpy/core.py", 9)]
SOURCE = """\
def serve(conn):
    while True:
        command, data = conn.recv()
        if command == "step":
            conn.send(data)
        elif command == "close":
            break

class Envs:
    def start(self):
        self.conn, child = Pipe()
        Process(target=serve, args=(child,)).start()
        child.close()

    def close(self):
        {closes}

def main():
    envs = Envs()
    envs.start()
    {more}
"""


def report_of(
    run: Path,
    *,
    exit_stack: list[Frame] = EXIT,
    child: list[Frame] = RECV,
    children: int = 1,
    closes: str = 'self.conn.send(("close", None))',
    more: str = "train(envs)",
) -> Report:
    """Process 101 at its end, and its children, each below serve()."""
    script = run / "train.py"
    script.write_text(SOURCE.format(closes=closes, more=more))
    os.utime(script, (0, 0))
    fork: list[Frame] = [("Popen._launch", f"{MP}/popen_fork.py", 71), ("Envs.start", str(script), 12)]
    inner: list[Frame] = [*child, ("serve", str(script), 3), ("BaseProcess._bootstrap", f"{MP}/process.py", 314)]
    boxes = [
        stopped(Box(pid=102 + number, ppid=101).at(100 + number).mark("begin"), [*inner, *fork])
        for number in range(children)
    ]
    return ended(run, stopped(parent(), exit_stack), *boxes)


def test_end_of_a_program_that_joins_a_child_is_told_with_what_would_end_the_child(run: Path) -> None:
    """Nobody is left who could send it; the method that does is never called."""
    report = report_of(run)
    assert verdict(report) == ("hang", "likely")
    told = summary(report)
    assert "Process 101 (train.py) had come to its end, where multiprocessing joins process 102" in told
    assert "which is no daemon: it waited for a message in `conn.recv()` at train.py:3 in serve" in told
    assert (
        "its loop ends at `'close'`, which only Envs.close() sends (line 16), and nothing in the program calls" in told
    )
    assert "Call Envs.close() for each of them" in advice(report)
    assert "start them (line 12) with daemon=True" in advice(report)


def test_all_children_are_told_at_once(run: Path) -> None:
    """The first ones by their names."""
    told = summary(report_of(run, children=3))
    assert "joins 3 child processes (" in told
    assert "which are no daemons: all waited for a message in `conn.recv()` at train.py:3 in serve" in told


@pytest.mark.parametrize(
    "more",
    ["envs.close()", "atexit.register(envs.close)", "if train(envs): envs.close()", "for e in [envs]: e.close()"],
)
def test_method_that_may_be_called_is_not_said_to_be_uncalled(more: str, run: Path) -> None:
    """It may be a way that the program did not take; what ends the loop stays known."""
    told = summary(report_of(run, more=more))
    assert "which only Envs.close() sends (line 16)" in told
    assert "nothing in the program calls" not in told


def test_mark_that_no_line_sends_is_told_so(run: Path) -> None:
    """The child has a way out that nobody opens."""
    report = report_of(run, closes="self.conn.close()")
    assert "its loop ends at `'close'`, which no line of the program sends" in summary(report)
    assert "Send `'close'` once to each of them" in advice(report)


def test_child_that_works_may_only_need_longer(run: Path) -> None:
    """The look-alike: the program ends when its child has done its work."""
    report = report_of(run, child=WORKS)
    assert verdict(report) == ("hang", "possible")
    assert "which is no daemon: it was at train.py:3 in serve" in summary(report)
    assert "ends at" not in summary(report)
    assert "If it only takes long, raise the time limit" in advice(report)


def test_join_by_a_line_of_the_program_is_no_end_of_it(run: Path) -> None:
    """The look-alike: the program itself waits there."""
    stack: list[Frame] = [*EXIT[:2], ("main", str(run / "train.py"), 20)]
    assert "had come to its end" not in summary(report_of(run, exit_stack=stack))


def test_child_that_waits_for_a_reader_has_a_reason_of_its_own(run: Path) -> None:
    """The look-alike: it is not idle, but cannot end."""
    stuck: list[Frame] = [("Connection._send", f"{MP}/connection.py", 384)]
    assert "had come to its end" not in summary(report_of(run, child=stuck))
