"""timeout(1) that ended a job at its limit, and its other ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support import scenarios as s
from tests.support.synth import MS, Box

COMMAND = ["timeout", "40", "python", "serve.py"]


def reasons(run: Path, limit: Box, *, sender: int = 90) -> dict[int | None, tuple[str | None, str | None]]:
    """Kind and words of each end: of a timeout, of the program that it runs, and of a worker that failed before."""
    program = Box(pid=91, ppid=90, argv=["python", "serve.py"]).versions(python="3.11.7", torch="2.13.0")
    program.at(40_000).signal_seen(15, sender, COMMAND)
    worker = Box(pid=92, ppid=91, argv=["python", "serve.py"]).at(1_000).exit(1)
    report = build_report(s.load(run, limit, program, worker))
    return {item.pid: (item.why_kind, item.why) for item in report.processes or []}


def timeout() -> Box:
    return Box(pid=90, ppid=80, argv=COMMAND).at(40_010)


def test_job_that_ran_into_its_limit_did_not_end_because_of_a_worker(run: Path) -> None:
    """Neither the status of timeout(1) nor the signal that it sent is an account of the worker's failure."""
    told = reasons(run, timeout().wait(91, signal=15).exit(124))
    assert told[90] == ("limit", "ended the job at its time limit")
    assert told[91] == ("limit", "ended by timeout, process 90, at its time limit")


@pytest.mark.parametrize(
    "limit",
    [
        timeout().signal_seen(15, 7, ["bash"]).wait(91, signal=15).exit(124),
        Box(pid=90, ppid=80, argv=["sh", "run.sh"]).at(40_010).wait(91, signal=15).exit(124),
        timeout().wait(91, exit_code=1).exit(1),
    ],
    ids=["passes a signal on", "a shell", "passes a status on"],
)
def test_other_ends_are_accounts_of_what_failed(limit: Box, run: Path) -> None:
    """The look-alikes: a signal that it got itself, another program, and the program's own status."""
    told = reasons(run, limit, sender=7)
    assert told[90] == ("reported", "reports the failure of process 92 (serve.py)")
    assert told[91][0] != "limit"


@pytest.mark.parametrize("before", [False, True])
def test_worker_that_its_parents_end_killed_is_not_why_that_one_was_ended(before: bool, run: Path) -> None:
    """PR_SET_PDEATHSIG: who ended the parent did not do so because of the end of its child, if that is no older."""
    program = Box(pid=91, ppid=90, argv=["python", "serve.py"]).versions(python="3.11.7", torch="2.13.0")
    worker = Box(pid=92, ppid=91, argv=["python", "serve.py"]).at(1_000).step(1)
    if before:
        program.at(9_000).wait(92, signal=9)
    program.at(40_000).signal_seen(15, 90, COMMAND)
    seen = {"pid": 92, "start_ticks": worker.start_ticks, "first_mono_ns": 1, "how": "zombie", "signal": 9}
    seen |= {"alive_mono_ns": worker.created_ns + 1_000 * MS, "gone_mono_ns": worker.created_ns + 40_030 * MS}
    counters = {"mono_ns": 1, "cgroups": [], "vmstat_oom_kill": 5}
    witness = {"before": counters, "after": counters, "ended": True, "kernel_log": {"readable": True, "lines": []}}
    witness |= {"processes": [seen], "first_pid_namespace": True}
    root = timeout().wait(91, signal=15).exit(124)
    report = build_report(s.load(run, root, program, worker, launcher={"witness": witness}))
    told = {item.pid: (item.primary, item.why) for item in report.processes or []}
    assert told[92 if before else 91] == (True, "first")
    assert told[91 if before else 92][0] is not True
