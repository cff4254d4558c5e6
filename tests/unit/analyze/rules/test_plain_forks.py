"""standstill: a child of os.fork() in the OpenMP runtime, whose parent waits in a way of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import ended, parent, stopped
from tests.support.synth import Box
from tests.unit.analyze.rules.test_messages import IN_OPENMP, child

SERVER = """import os
def receive(sock):
    return sock.recv(4)
def predict(texts):
    return model(texts)
def serve(sock):
    predict(receive(sock))
def boot():
    pid = os.fork()
    if pid == 0:
        serve(sock)
def main():
    predict(["warm up"])
    boot()
    receive(sock)
"""


def told(run: Path, source: str = SERVER) -> Report:
    """Both ended by `timeout`: the parent in recv() of a socket, the child in its first model call."""
    script = str(s.program_in(run, source))
    line = {text.strip(): number for number, text in enumerate(source.splitlines(), 1)}
    waits = stopped(parent(), [("receive", script, 3), ("main", script, line["receive(sock)"])])
    return ended(run, waits, stuck(child(), script, line))


def stuck(box: Box, script: str, line: dict[str, int]) -> Box:
    stack = [("predict", script, line["return model(texts)"]), ("serve", script, line["predict(receive(sock))"])]
    stack += [("boot", script, line["serve(sock)"]), ("main", script, line["boot()"])]
    return stopped(box, stack, IN_OPENMP)


def test_forked_server_is_what_its_parent_waits_for(run: Path) -> None:
    """The parent waits at a socket, which says nothing of whom it waits for."""
    report = told(run)
    assert verdict(report) == ("hang", "likely")
    assert "its parent had used OpenMP threads before it forked at program.py:9 in boot" in summary(report)
    assert advice(report).startswith("Line 9 (`os.fork()`) forks it")
    assert "(used at program.py:13 in main)" in advice(report)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (SERVER.replace("    pid = os.fork()", "    pid = fork()"), "do not exist in a forked child"),
        (SERVER.replace("    pid = os.fork()", "    os.fork(); pid = os.fork()"), "do not exist in a forked child"),
        (SERVER.replace('    predict(["warm up"])', '    warm and predict(["warm up"])'), "forks it"),
    ],
    ids=["another fork", "two", "perhaps no warm-up"],
)
def test_what_the_source_does_not_show_is_left_out(source: str, words: str, run: Path) -> None:
    """The wait is told all the same."""
    report = told(run, source)
    assert verdict(report) == ("hang", "likely")
    assert words in advice(report)
    assert ("Line 9" in advice(report)) == (words == "forks it")
    assert "used at" not in advice(report)


def test_line_behind_the_fork_is_no_use_of_the_parent(run: Path) -> None:
    """The child itself ran it."""
    source = SERVER.replace('    predict(["warm up"])\n', "").replace(
        "        serve(sock)", "        predict(1)\n        serve(sock)"
    )
    assert "used at" not in advice(told(run, source))
