"""A program that kills its child, and then raises because of the child's exit code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import Process, SignalSend
from pytracer.decode.types.storages import PythonFrame
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary
from tests.support.synth import MS, Box

PROGRAM = """class Arena:
    def __exit__(self, *error):
        {kill}
        job.join()
        if {test}:
            raise RuntimeError(f"simulator ended with {{job.exitcode}}")
"""


def killed(
    run: Path,
    test: str = "job.exitcode != 0",
    kill: str = "job.kill()",
    other: int | None = None,
    function: str = "Arena.__exit__",
    **more: Any,
) -> Report:
    """The parent is at line 3, then at line 6."""
    script = str(s.program_in(run, PROGRAM.format(test=test, kill=kill)))
    parent, child = Box(pid=101, ppid=99).at(500), Box(pid=102, ppid=101).at(500).mark("begin")
    parent.at(900).wait(102, signal=9)
    parent.exception("RuntimeError", "simulator ended with -9", [("Arena.__exit__", script, 6)], **more).exit(1)
    boxes = []
    if other is not None:
        parent.wait(103, exit_code=other)
        boxes = [Box(pid=103, ppid=101).at(500).mark("begin")]
    job = s.load(run, parent, child, *boxes)

    def noting(process: Process) -> Process:
        if process.snapshot.pid != 101:
            return process
        at = child.created_ns + 800 * MS
        send = SignalSend(9, 102, False, 0, child.start_ticks, "R", 101, at, (PythonFrame(function, script, 3),))
        return replace(process, snapshot=replace(process.snapshot, sends=(send,)))

    return build_report(replace(job, processes=tuple(noting(item) for item in job.processes)))


def test_exit_code_of_a_child_that_the_program_killed_is_no_failure_of_it(run: Path) -> None:
    """Found by a twin: the parent's own check, which ended the job, was told nowhere."""
    report = killed(run)
    assert "program.py:3 in Arena.__exit__; line 6 then raised RuntimeError, as `job.exitcode != 0` held" in summary(
        report
    )
    assert "whose exit code is -9 then: let line 5 accept that" in advice(report)


@pytest.mark.parametrize("parts", [("self.failed", "job.kill()"), ("job.exitcode != 0", "if stale(job): job.kill()")])
def test_other_conditions_and_kills_for_a_reason_are_not_told_so(parts: tuple[str, str], run: Path) -> None:
    assert "then raised" not in summary(killed(run, *parts))


def test_exception_on_whose_way_out_the_child_was_killed_comes_first(run: Path) -> None:
    """Found by a twin of the twin: the first exception was told nowhere."""
    at = {"function": "main", "file": "m.py", "line": 4}
    first = {"type": "KeyError", "message": "'policy'", "python_stack": [at]}
    report = killed(run, context=[first])
    assert "that was on the way out of KeyError: 'policy' (m.py:4), before line 6 raised" in summary(report)
    assert advice(report).startswith("Begin with KeyError: 'policy'")


def test_exit_code_of_another_child_is_told_as_that(run: Path) -> None:
    """Found by reviewing: of a trainer that had failed, line 5 was to accept -9."""
    report = killed(run, "self.trainer.exitcode != 0", "self.monitor.kill()", other=3)
    assert "as `self.trainer.exitcode != 0` held (line 5), and process 103 (train.py) had ended with status 3" in (
        summary(report)
    )
    assert advice(report).startswith("Begin with that one") and "accept" not in advice(report)


def test_exit_code_of_a_child_that_is_not_known_is_not_that_of_the_killed_one(run: Path) -> None:
    assert "then raised" not in summary(killed(run, "self.trainer.returncode", "self.monitor.kill()"))


def test_exception_behind_a_kill_that_was_not_on_its_way_out_does_not_come_first(run: Path) -> None:
    """Found by reviewing: the result of a child was looked up after it was killed."""
    at = {"function": "main", "file": "m.py", "line": 4}
    first = {"type": "KeyError", "message": "'policy'", "python_stack": [at]}
    report = killed(run, function="Arena.collect", context=[first])
    assert "on the way out of" not in summary(report)
    assert "line 6 then raised RuntimeError" in summary(report)
