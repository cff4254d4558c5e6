"""external-kill: a line of the program that sent SIGKILL, and the condition below which it did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import Process, SignalSend
from pytracer.decode.types.storages import PythonFrame
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.synth import MS, Box

WATCH = """def murder_stale(self):
    if time.monotonic() - self.beat.value > self.timeout:
        os.kill(self.worker.pid, signal.SIGKILL)
"""


def killed(run: Path, source: str, line: int = 3) -> Report:
    """By its parent, at a line of this program."""
    script = str(s.program_in(run, source))
    parent, child = Box(pid=101, ppid=99).at(500), Box(pid=102, ppid=101).at(500).mark("begin")
    parent.at(900).wait(102, signal=9).exit(1)
    job = s.load(run, parent, child)

    def noting(process: Process) -> Process:
        if process.snapshot.pid != 101:
            return process
        frame = PythonFrame("murder_stale", script, line)
        at = child.created_ns + 800 * MS
        send = SignalSend(9, 102, False, 0, child.start_ticks, "R", 101, at, (frame,))
        return replace(process, snapshot=replace(process.snapshot, sends=(send,)))

    return build_report(replace(job, processes=tuple(noting(item) for item in job.processes)))


def test_time_that_had_passed_is_told(run: Path) -> None:
    """The condition is the reason: the program's own time limit, not a lack of memory."""
    report = killed(run, WATCH)
    assert verdict(report)[0] == "external-kill"
    assert "in murder_stale, where `time.monotonic() - self.beat.value > self.timeout` holds (line 2)" in summary(
        report
    )
    assert "If that time is too short, raise it; else see what took so long." in advice(report)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            WATCH.replace("time.monotonic() - self.beat.value > self.timeout", "self.finished"),
            "where `self.finished` holds",
        ),
        ("def stop(self):\n    self.report()\n    os.kill(self.worker.pid, signal.SIGKILL)\n", "it sends the signal."),
    ],
    ids=["no time", "no condition"],
)
def test_other_conditions_are_no_limits_of_time(source: str, words: str, run: Path) -> None:
    report = killed(run, source)
    assert words in f"{summary(report)} {advice(report)}"
    assert "too short" not in advice(report)
