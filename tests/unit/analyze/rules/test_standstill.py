"""standstill: what a process waited for when a time limit ended it, and what only looks like a wait."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import finding, summary, verdict
from tests.support.synth import Box, Frame

EXIT = 6  # CrashState
GOMP = f"{s.TORCH}/lib/libgomp.so.1"
FILL: list[tuple[str, int]] = [(GOMP, 0x1000), (GOMP, 0x1010), (s.TORCH_CPU, 0x9900)]
FOO: list[Frame] = [("foo", s.SCRIPT, 6)]
JOIN: list[Frame] = [("Popen.poll", "/usr/lib/python3.11/multiprocessing/popen_fork.py", 27), ("main", s.SCRIPT, 12)]
GET: list[Frame] = [("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 103), ("main", s.SCRIPT, 12)]
TIMEOUT = ["timeout", "60", "python", "train.py"]


def stopped(
    box: Box, python: Sequence[Frame], native: Sequence[tuple[str, int]] = (), by: Sequence[str] = TIMEOUT
) -> Box:
    """A process that SIGTERM ended below these frames."""
    box.at(60_000).signal_seen(15, 90, by)
    return box.crash(0, code=0, state=EXIT, python=python, native=native or [(s.LIBC, 0x10), (s.PYTHON, 0x20)])


def ended(run: Path, *boxes: Box, by: Sequence[str] = TIMEOUT) -> Report:
    """Below the process that sent the signal."""
    root = Box(pid=90, ppid=80, argv=by).at(60_010).wait(101, signal=15).exit(124)
    return build_report(s.load(run, root, *boxes))


def forked(ppid: int = 101) -> Box:
    """A copy of its parent: it has an entry from before its own start."""
    return Box(pid=102, ppid=ppid, created_ns=6_000_000_000).at(-500).versions(torch="2.13.0").at(100).mark("begin")


def parent() -> Box:
    return Box(pid=101, ppid=90).versions(torch="2.13.0")


def test_forked_child_that_waits_for_openmp_is_the_cause(run: Path) -> None:
    """Its parent waits for it; the time limit ended both."""
    report = ended(run, stopped(parent(), JOIN), stopped(forked(), FOO, FILL))
    assert verdict(report) == ("hang", "likely")
    assert summary(report).startswith(
        "Process 102 (train.py) waited in the OpenMP runtime of a forked child at train.py:6 in foo"
    )
    assert report.verdict is not None and report.verdict.pid == 102
    assert {item.pid: item.primary for item in report.processes or []}[101] is False


def test_openmp_in_a_process_of_its_own_is_work(run: Path) -> None:
    """The look-alike: no fork, so its threads exist; the main one is ready before them."""
    report = ended(run, stopped(parent(), FOO, FILL))
    assert verdict(report)[0] == "external-kill"


def test_parent_of_a_working_child_is_only_possibly_to_blame(run: Path) -> None:
    """The look-alike: the child computes; nobody but the time limit knows whether that was too long."""
    report = ended(run, stopped(parent(), JOIN), stopped(forked(), FOO, [(s.TORCH_CPU, 0x9900)]))
    assert verdict(report) == ("hang", "possible")
    assert "waited for a child process" in summary(report)


@pytest.mark.parametrize("by", [["kubelet"], ["python", "supervisor.py"]])
def test_idle_service_that_is_stopped_does_not_hang(by: list[str], run: Path) -> None:
    """The look-alike: waiting for requests is what it does, and no time limit ended it."""
    box = stopped(parent(), GET, by=by)
    report = ended(run, box, by=by)
    assert verdict(report)[0] == "external-kill"
    assert finding(report, "standstill") is None


def test_empty_queue_under_a_time_limit_is_possibly_the_cause(run: Path) -> None:
    """Nothing tells how long it waited."""
    report = ended(run, stopped(parent(), GET))
    assert verdict(report) == ("hang", "possible")
    assert "waited for a queue at train.py:12 in main" in summary(report)
    found = finding(report, "standstill")
    assert found is not None and found.missing


def test_process_at_work_is_ended_by_the_signal(run: Path) -> None:
    """The look-alike: its own line, in a kernel."""
    report = ended(run, stopped(parent(), FOO, [(s.TORCH_CPU, 0x9900)]))
    assert verdict(report) == ("external-kill", "certain")


def test_crash_beside_a_waiting_parent_is_the_cause(run: Path) -> None:
    """The look-alike: what the parent waits for died."""
    child = forked().at(500).crash(addr=0, python=FOO, native=s.NATIVE[:1])
    report = ended(run, stopped(parent(), JOIN), child)
    assert verdict(report)[0] == "null-dereference"
