"""Exceptions of a program that asked for the exit status of a child and got none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary
from tests.support.scenarios import program_in
from tests.support.synth import Box

SOURCE = """\
import os, signal
signal.signal(signal.SIGCHLD, {action})
def check(worker):
    worker.join()
    if worker.exitcode != 0:
        raise RuntimeError("worker failed")
    if worker.exitcode < 0:
        return os.waitpid(worker.pid, 0)
check(start())
"""
IGNORED = [{"name": "SIGCHLD action", "value": "ignored"}]


def raised(
    run: Path,
    error: tuple[str, str],
    line: int,
    *,
    action: str = "signal.SIG_IGN",
    noted: bool = False,
    collected: bool = False,
    child: bool = True,
    value: str | None = None,
    minor: int = 0,
    values: bool = True,
) -> Report:
    """The program raised at that line, after its only child had ended with status 0."""
    program = str(program_in(run, SOURCE.format(action=action)))
    worker = Box(pid=102, ppid=101 if child else 99, argv=["python", program]).at(800).mark("step").at(850).exit(0)
    environment = {} if values else {"PYTRACER_NO_VALUES": "1"}
    parent = Box(pid=101, ppid=99, argv=["python", program], environment=environment).at(900)
    parent.minor = minor
    if collected:
        parent.wait(102, exit_code=0)
    stack = [("check", program, line), ("<module>", program, 9)]
    held = [{"name": "worker.exitcode", "value": value}] if value is not None else []
    parent.at(1000).exception(*error, stack, variables=[*held, *(IGNORED if noted else [])]).exit(1)
    return build_report(s.load(run, parent, worker))


NONE = ("TypeError", "'<' not supported between instances of 'NoneType' and 'int'")


@pytest.mark.parametrize(
    ("error", "line", "words"),
    [
        (("RuntimeError", "worker failed"), 6, "`worker.exitcode` is None"),
        (NONE, 7, "`worker.exitcode` is None"),
        (("ChildProcessError", "[Errno 10] No child processes"), 8, "the exit status of a child was lost"),
    ],
    ids=["a check of its own", "a comparison", "waitpid"],
)
def test_status_is_lost_by_the_line_that_ignores_the_signal(
    error: tuple[str, str], line: int, words: str, run: Path
) -> None:
    """Whatever asked for it."""
    report = raised(run, error, line, noted=True, minor=13)
    assert f"{words}, as SIGCHLD is ignored (line 2) and the kernel keeps none then" in summary(report)
    assert "Take out line 2" in advice(report)
    assert f"before line {line}" in advice(report)


def test_ignored_signal_that_was_recorded_needs_no_line(run: Path) -> None:
    """Of a process that inherited it."""
    said = summary(raised(run, NONE, 7, action="handler", noted=True))
    assert "`worker.exitcode` is None, as SIGCHLD is ignored and the kernel keeps none then" in said


@pytest.mark.parametrize(("minor", "values"), [(12, True), (13, False)], ids=["older", "without values"])
def test_line_alone_does_not_prove_that_the_signal_was_ignored(minor: int, values: bool, run: Path) -> None:
    """Where the recorder could not note it: the line may not have run."""
    said = summary(raised(run, NONE, 7, minor=minor, values=values))
    assert "`worker.exitcode` is None, as SIGCHLD is probably ignored (line 2)" in said


def test_recording_without_the_note_shows_that_the_signal_was_not_ignored(run: Path) -> None:
    """The line did not run, or was undone."""
    assert "SIGCHLD" not in summary(raised(run, NONE, 7, minor=13))


@pytest.mark.parametrize(
    "how", [{"value": "3"}, {"child": False}, {"collected": True}], ids=["a status", "no child", "collected"]
)
def test_status_that_is_not_that_of_a_lost_child_is_not_explained(how: dict[str, Any], run: Path) -> None:
    """SIGCHLD is ignored, and the status is there, that of another process, or may be there."""
    assert "SIGCHLD" in summary(raised(run, ("RuntimeError", "worker failed"), 6, noted=True, minor=13, value="None"))
    report = raised(run, ("RuntimeError", "worker failed"), 6, noted=True, minor=13, **how)
    assert "SIGCHLD" not in summary(report), summary(report)


@pytest.mark.parametrize("how", ["collected", "another signal", "another line"])
def test_other_errors_have_nothing_to_do_with_it(how: str, run: Path) -> None:
    """A child whose status came, a program that ignores no SIGCHLD, a value of another name."""
    if how == "collected":
        report = raised(run, ("RuntimeError", "worker failed"), 6, collected=True)
    elif how == "another signal":
        report = raised(run, NONE, 7, action="handler")
    else:
        report = raised(run, NONE, 4)
    assert "SIGCHLD" not in summary(report)
