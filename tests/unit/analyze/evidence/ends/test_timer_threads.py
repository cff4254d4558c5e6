"""A process that a threading.Timer of its own ended."""

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
from tests.support.synth import Box

RUN = PythonFrame("Timer.run", "/usr/lib/python3.12/threading.py", 1431)
SOURCE = """def start_deadline(seconds):
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
    timer.start()
def main():
    start_deadline(3.0)
    simulate()
"""


def killed(run: Path, source: str, frame: PythonFrame = RUN) -> Report:
    """It noted the signal that it sent to itself."""
    box = Box(pid=101, ppid=99)
    box.devices.segment(0x7F60_0000_0000, 20 << 20)
    box.devices.alloc(0x7F60_0000_0000, 4096, box.code("main", str(s.program_in(run, source)), 6), box.epoch)
    job = s.load(run, box.at(500), launcher={"child_pid": 101, "signal": 9, "ended_mono_ns": box.now + 10_000_000})

    def noting(process: Process) -> Process:
        snapshot = process.snapshot
        send = SignalSend(9, 101, False, None, snapshot.start_ticks, "R", 102, box.now, (frame,))
        return replace(process, snapshot=replace(snapshot, sends=(send,)))

    return build_report(replace(job, processes=tuple(noting(item) for item in job.processes)))


def test_the_line_that_made_the_timer_is_named(run: Path) -> None:
    """And the only call that gave it its time."""
    report = killed(run, SOURCE)
    assert verdict(report)[0] == "external-kill"
    assert "by the timer that program.py:2 in start_deadline made" in summary(report)
    assert "called at program.py:5: `start_deadline(3.0)`) had passed: raise it" in advice(report)


@pytest.mark.parametrize(
    ("source", "frame"),
    [
        (SOURCE.replace("os.kill, (os.getpid(), signal.SIGKILL)", "report"), RUN),
        (SOURCE + "    threading.Timer(9, os.kill, (other, 9)).start()\n", RUN),
        (SOURCE, PythonFrame("stop", "/job/main.py", 12)),
    ],
    ids=["another function", "two timers", "another line"],
)
def test_another_sender_is_not_taken_for_a_timer(run: Path, source: str, frame: PythonFrame) -> None:
    """The line that is on record is named as before."""
    report = killed(run, source, frame)
    assert "timer that" not in summary(report) and "it sends the signal" in advice(report)
