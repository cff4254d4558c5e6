"""Signals for the process group of a child that was in the group of its parent."""

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

SOURCE = """import os, signal, subprocess
class Sandbox:
    def start(self):
        self.child = {start}
    def stop(self):
        group = os.getpgid(self.child.pid)
        {kill}
sandbox = Sandbox()
sandbox.start()
sandbox.stop()
"""
POPEN = "subprocess.Popen(['sh', '-c', 'work'])"
KILL = "os.killpg(group, signal.SIGKILL)"


def killed(run: Path, *, start: str = POPEN, kill: str = KILL, target: int = 101, number: int = 9) -> Report:
    """The program noted the signal that it sent to its own group, and died of it."""
    program = str(s.program_in(run, SOURCE.format(start=start, kill=kill)))
    box = Box(pid=101, ppid=99, argv=["python", program]).versions(python="3.11.7").at(400).mark("step").at(500)
    if number != 9:
        box.signal_seen(number, 101, ["python", program])
        box.crash(0, code=0, state=6, python=[("Sandbox.stop", program, 7)], native=[(s.LIBC, 0x10)])
    ended = {"child_pid": 101, "signal": number, "ended_mono_ns": box.now + 10_000_000}
    job = s.load(run, box, launcher=ended)
    stack = (PythonFrame("Sandbox.stop", program, 7), PythonFrame("<module>", program, 10))

    def noting(process: Process) -> Process:
        send = SignalSend(number, target, True, None, None, None, 101, box.now, stack)
        return replace(process, snapshot=replace(process.snapshot, sends=(send,)))

    return build_report(replace(job, processes=tuple(noting(item) for item in job.processes)))


@pytest.mark.parametrize(
    ("start", "kill"),
    [
        (POPEN, KILL),
        (POPEN, "os.killpg(os.getpgid(self.child.pid), signal.SIGKILL)"),
        (POPEN, "os.kill(-group, signal.SIGKILL)"),
        ("subprocess.Popen('work', shell=True, start_new_session=False)", KILL),
    ],
    ids=["a variable", "one line", "kill", "off"],
)
def test_child_that_was_started_without_a_group_is_named(start: str, kill: str, run: Path) -> None:
    """With the line that starts it."""
    report = killed(run, start=start, kill=kill)
    assert verdict(report)[0] == "external-kill"
    assert (
        "it was for the process group of `self.child`, which is the program's own: line 4 starts it without "
        "start_new_session"
    ) in summary(report)
    assert advice(report).startswith("Pass start_new_session=True to Popen() at line 4")
    assert "did nothing wrong" not in advice(report)


def test_other_signals_to_the_own_group_are_told_alike(run: Path) -> None:
    """SIGTERM is recorded in the process that it ends."""
    report = killed(run, number=15, kill="os.killpg(group, signal.SIGTERM)")
    assert "it was for the process group of `self.child`" in summary(report)
    assert "start_new_session=True" in advice(report)


def test_process_of_multiprocessing_has_no_such_option(run: Path) -> None:
    """It is ended alone, or makes a group itself."""
    report = killed(run, start="multiprocessing.Process(target=work)")
    assert "line 4 starts it without a group of its own" in summary(report)
    assert "End `self.child` alone" in advice(report)


@pytest.mark.parametrize(
    "how",
    [
        {"start": "subprocess.Popen(['work'], start_new_session=True)"},
        {"start": "subprocess.Popen(['work'], process_group=0)"},
        {"start": "subprocess.Popen(['work'], preexec_fn=os.setsid)"},
        {"start": "subprocess.Popen(['work'], **options)"},
        {"start": "multiprocessing.Process(target=lambda: os.setsid())"},
        {"start": "find()"},
        {"kill": "os.killpg(0, signal.SIGKILL)"},
        {"kill": "os.killpg(os.getpgrp(), signal.SIGKILL)"},
    ],
    ids=["session", "group", "before exec", "options", "its own", "elsewhere", "own group", "own by name"],
)
def test_group_that_was_meant_or_made_is_left_alone(how: dict[str, str], run: Path) -> None:
    """Also what ends the whole group of the program on purpose."""
    report = killed(run, **how)  # type: ignore[arg-type]
    assert "it was for the process group" not in summary(report)
    assert "program.py:7" in advice(report)
