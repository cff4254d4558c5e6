"""Who sent the signal that ended a process: the note of a sender, against the process that it may have ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytracer.analyze.assemble.senders import recorded_senders
from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import Job, Process, SignalSend
from pytracer.decode.types.storages import PythonFrame
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.deaths import evidence, summary, verdict

VICTIM, KILLER, OTHER = 102, 101, 103
LINE = (PythonFrame("Popen.kill", "/usr/lib/python3.11/subprocess.py", 2214), PythonFrame("reap", "/job/main.py", 12))


def job_of(run: Path) -> Job:
    """Rank 1 was ended by SIGKILL at 600 ms, as the agent saw."""
    ranks = [s.rank(number).at(500).mark("step") for number in range(3)]
    return s.load(run, s.agent((VICTIM, {"signal": 9}), at=600), *ranks)


def with_sends(job: Job, sends: dict[int, list[SignalSend]]) -> Job:
    """The notes, by the sender's pid."""

    def noting(process: Process) -> Process:
        own = tuple(sends.get(process.snapshot.pid, ()))
        return replace(process, snapshot=replace(process.snapshot, sends=own))

    return replace(job, processes=tuple(noting(process) for process in job.processes))


def send(job: Job, **more: Any) -> SignalSend:
    """SIGKILL to rank 1, 10 ms before its end was seen."""
    (victim,) = (process for process in job.processes if process.snapshot.pid == VICTIM)
    given = {
        "signal": 9, "target": VICTIM, "to_group": False, "result": 0, "target_ticks": victim.snapshot.start_ticks,
        "target_state": "S", "tid": KILLER, "mono_ns": (victim.ended_mono_ns or 0) - 10_000_000, "stack": LINE,
    }  # fmt: skip
    return SignalSend(**{**given, **more})


def report_of(job: Job, **sends: list[SignalSend]) -> Report:
    return build_report(with_sends(job, {int(pid[1:]): items for pid, items in sends.items()}))


def test_the_line_of_the_program_is_named(run: Path) -> None:
    """Not the library's line that it called."""
    job = job_of(run)
    report = report_of(job, p101=[send(job)])
    assert verdict(report) == ("external-kill", "certain")
    assert "sent by rank 0, process 101" in summary(report) and ", at main.py:12 in reap." in summary(report)


@pytest.mark.parametrize(
    "other",
    [
        {"target_ticks": 1},  # another process had this pid then
        {"target_state": "Z"},  # it was dead already
        {"result": 3},  # ESRCH
        {"signal": 15},
        {"target": 999},
        {"mono_ns": 1 << 62},  # after its end
        {"to_group": True, "target": 999},
    ],
)
def test_what_did_not_end_it_is_not_blamed(other: dict[str, Any], run: Path) -> None:
    """The look-alikes: above all a reused pid."""
    job = job_of(run)
    if "target_ticks" in other:
        (victim,) = (process for process in job.processes if process.snapshot.pid == VICTIM)
        other = {"target_ticks": victim.snapshot.start_ticks + 5000}
    assert recorded_senders(with_sends(job, {KILLER: [send(job, **other)]}).processes) == {}
    assert "sent by" not in summary(report_of(job, p101=[send(job, **other)]))


def test_several_senders_are_all_named(run: Path) -> None:
    """Two processes sent it at the same moment: either may have ended it."""
    job = job_of(run)
    at = send(job).mono_ns
    report = report_of(job, p101=[send(job)], p103=[send(job, mono_ns=at + 1_000_000, stack=())])
    assert verdict(report) == ("external-kill", "likely")
    assert "process 101" in summary(report) and ", or rank 2, process 103" in summary(report)
    assert evidence(report).count("noted that it sent SIGKILL to process 102") == 2


def test_second_killer_came_too_late(run: Path) -> None:
    """What was sent to the dying process seconds later did nothing."""
    job = job_of(run)
    at = send(job).mono_ns
    report = report_of(job, p101=[send(job, mono_ns=at - 2_000_000_000)], p103=[send(job)])
    assert verdict(report) == ("external-kill", "certain")
    assert "process 103" not in summary(report)
