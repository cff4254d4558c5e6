"""Exceptions of a program that asked for the exit status of a child and got none."""

from __future__ import annotations

from pathlib import Path

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
) -> Report:
    """The program raised at that line, after its only child had ended with status 0."""
    program = str(program_in(run, SOURCE.format(action=action)))
    child = Box(pid=102, ppid=101, argv=["python", program]).at(800).mark("step").at(850).exit(0)
    parent = Box(pid=101, ppid=99, argv=["python", program]).at(900)
    if collected:
        parent.wait(102, exit_code=0)
    stack = [("check", program, line), ("<module>", program, 9)]
    parent.at(1000).exception(*error, stack, variables=IGNORED if noted else []).exit(1)
    return build_report(s.load(run, parent, child))


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
    report = raised(run, error, line)
    assert f"{words}, as SIGCHLD is ignored (line 2) and the kernel keeps none then" in summary(report)
    assert "Take out line 2" in advice(report)
    assert f"before line {line}" in advice(report)


def test_ignored_signal_that_was_recorded_needs_no_line(run: Path) -> None:
    """Of a process that inherited it."""
    said = summary(raised(run, NONE, 7, action="handler", noted=True))
    assert "`worker.exitcode` is None, as SIGCHLD is ignored and the kernel keeps none then" in said


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
