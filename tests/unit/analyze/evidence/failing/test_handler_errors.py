"""Exceptions that a signal handler raised: the line that ran then is not at fault, and an alarm may still be on."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.report.job import ExceptionReport, PythonFrame

PROGRAM = """import signal
def on_signal(number, frame):
    raise TimeoutError("too slow")
def load(n):
    {begins}
    return read(n)
def main():
    signal.signal(signal.{kind}, on_signal)
    for n in range(9):
        train(load(n))
    {calls}
main()
"""


def said(folder: Path, kind: str, begins: str, calls: str = "pass", line: int = 10) -> Explanation:
    """Of an exception of the handler while main() was at a line."""
    program = folder / "train.py"
    program.write_text(PROGRAM.format(kind=kind, begins=begins, calls=calls), encoding="utf-8")
    snapshot: Any = SimpleNamespace(
        created_wall_ns=time.time_ns() + 10**9, rank=None, environment={}, argv=("a",), facts=(), named={}
    )
    way = [("on_signal", 3), ("main", line), ("<module>", 12)]
    stack = [PythonFrame(function=name, file=str(program), line=number) for name, number in way]
    return explained(snapshot, ExceptionReport(type="TimeoutError", message="too slow"), stack)


def test_alarm_that_nothing_turns_off(tmp_path: Path) -> None:
    """It goes off in whatever runs then."""
    found = said(tmp_path, "SIGALRM", "signal.alarm(5)")
    assert found.subject == (
        "the handler of SIGALRM (line 8) raised it in the middle of line 10, as no line turns off the timer of line 5 "
        "(`signal.alarm(5)`)"
    )
    assert "signal.alarm(0)" in (found.words or "")
    timer = said(tmp_path, "SIGALRM", "signal.setitimer(signal.ITIMER_REAL, 5)")
    assert "signal.setitimer(signal.ITIMER_REAL, 0)" in (timer.words or "")


def test_alarm_that_a_line_turns_off_is_not_said_to_stay(tmp_path: Path) -> None:
    """What it limits took too long, or that line was left out."""
    found = said(tmp_path, "SIGALRM", "signal.alarm(5); check(); signal.alarm(0)")
    assert found.subject == "the handler of SIGALRM (line 8) raised it in the middle of line 10"
    assert "no line" not in (found.words or "")


def test_other_signals_come_from_elsewhere(tmp_path: Path) -> None:
    """An alarm does not matter then."""
    found = said(tmp_path, "SIGTERM", "signal.alarm(5)")
    assert found.subject == "the handler of SIGTERM (line 8) raised it in the middle of line 10"
    assert "who sent SIGTERM" in (found.words or "")


@pytest.mark.parametrize("calls", ["on_signal(0, None)"])
def test_function_that_is_called_is_no_handler_then(calls: str, tmp_path: Path) -> None:
    """The look-alike: the line calls it itself."""
    assert "the handler of" not in (said(tmp_path, "SIGALRM", "pass", calls, line=11).subject or "")


def test_handler_that_fails_has_the_reason_of_its_line(tmp_path: Path) -> None:
    """It did not mean to raise."""
    program = tmp_path / "train.py"
    text = PROGRAM.format(kind="SIGTERM", begins="pass", calls="pass").replace("raise TimeoutError", "save")
    program.write_text(text, encoding="utf-8")
    snapshot: Any = SimpleNamespace(
        created_wall_ns=time.time_ns() + 10**9, rank=None, environment={}, argv=("a",), facts=(), named={}
    )
    way = [("on_signal", 3), ("main", 10), ("<module>", 12)]
    stack = [PythonFrame(function=name, file=str(program), line=number) for name, number in way]
    found = explained(snapshot, ExceptionReport(type="OSError", message="too slow"), stack)
    assert "the handler of" not in (found.subject or "")


def test_alarm_that_may_limit_what_runs_is_not_said_to_stay(tmp_path: Path) -> None:
    """Its function only sets it, for the next step."""
    program = PROGRAM.replace("    return read(n)", "")
    path = tmp_path / "train.py"
    path.write_text(program.format(kind="SIGALRM", begins="signal.alarm(5)", calls="pass"), encoding="utf-8")
    snapshot: Any = SimpleNamespace(
        created_wall_ns=time.time_ns() + 10**9, rank=None, environment={}, argv=("a",), facts=(), named={}
    )
    way = [("on_signal", 3), ("main", 10), ("<module>", 12)]
    stack = [PythonFrame(function=name, file=str(path), line=number) for name, number in way]
    found = explained(snapshot, ExceptionReport(type="TimeoutError", message="too slow"), stack)
    assert "as no line" not in (found.subject or "")
