"""Who died first, and why the others followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.build import build_view
from pytracer.analyze.clock import RunClock
from pytracer.analyze.deaths import find_deaths
from pytracer.analyze.engine import build_report
from pytracer.analyze.report import Report
from tests.support import scenarios as s
from tests.support.synth import Box


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "boxes").mkdir()
    return tmp_path


def judged(report: Report) -> dict[int | None, tuple[bool | None, str | None]]:
    return {item.rank: (item.primary, item.why) for item in report.processes or [] if item.role == "rank"}


def test_lost_connection_is_a_consequence(run: Path) -> None:
    """The demo: rank 1 first, rank 0 and the agent followed."""
    report = build_report(s.use_after_free(run))
    assert judged(report) == {1: (True, "first"), 0: (False, "lost the connection to rank 1")}
    agent = next(item for item in report.processes or [] if item.role == "launcher")
    assert (agent.primary, agent.why) == (False, "reports the failure of rank 1")


def test_lost_connection_that_came_first_is_not_blamed_on_a_later_crash(run: Path) -> None:
    """A crash cannot explain a connection that was lost 300 ms before."""
    report = build_report(s.use_after_free(run, peer_first=True))
    assert judged(report)[0] == (True, "first")
    assert judged(report)[1][0] is None
    assert report.verdict is not None and (report.verdict.class_, report.verdict.confidence) == (
        "python-exception",
        "possible",
    )


def test_sigterm_from_the_agent_is_a_consequence(run: Path) -> None:
    """torchrun ends the remaining workers; an exception was first."""
    first = s.rank(0).at(500).exception("ValueError", "bad", [("main", s.SCRIPT, 3)]).exit(1)
    ended = s.rank(1).at(600).mark("still running")
    report = build_report(s.load(run, s.agent((101, {"exit_code": 1}), (102, {"signal": 15})), first, ended))
    assert judged(report)[0] == (True, "first")
    primary, why = judged(report)[1]
    assert primary is False and "probably ended by torchrun's agent after rank 0" in (why or "")
    assert report.verdict is not None and report.verdict.class_ == "python-exception"


def test_sigterm_alone_came_from_outside(run: Path) -> None:
    """Nobody else died: somebody ended the job."""
    report = build_report(s.load(run, s.agent((102, {"signal": 15})), s.rank(1).at(500)))
    assert judged(report)[1][0] is True
    assert report.verdict is not None and report.verdict.class_ == "external-kill"


def test_slow_teardown_does_not_hide_the_first_exception(run: Path) -> None:
    """The rank that raised first exits last, after cleaning up: torchrun names the other one."""
    slow = s.rank(0).at(500).exception("ValueError", "bad batch", [("main", s.SCRIPT, 3)]).at(3500).exit(1)
    quick = s.rank(1).at(900).exception("RuntimeError", "Connection reset by peer", [("main", s.SCRIPT, 9)]).exit(1)
    report = build_report(s.load(run, s.agent((101, {"exit_code": 1}), (102, {"exit_code": 1}), at=4000), slow, quick))
    assert judged(report)[0][0] is True and judged(report)[1][0] is False
    assert report.verdict is not None and report.verdict.rank == 0


def test_overlapping_deaths_stay_undecided(run: Path) -> None:
    """Two SIGKILLs, both noticed by the agent in one poll: no order."""
    boxes = [s.rank(number).at(500 + number).mark("last record") for number in (0, 1)]
    report = build_report(s.load(run, s.agent((101, {"signal": 9}), (102, {"signal": 9})), *boxes))
    assert {primary for primary, _ in judged(report).values()} == {None}
    assert any(item.id == "first-death" and item.result == "cannot-decide" for item in report.checked or [])


def test_later_fault_elsewhere_is_not_judged(run: Path) -> None:
    """A different fault, later: it may be a consequence, which is said."""
    first = s.rank(0).at(500).crash(addr=0, python=s.BACKWARD[:1], native=s.NATIVE[:1])
    later = s.rank(1).at(700).crash(addr=0, python=s.BACKWARD[-1:], native=[(s.TORCH_CPU, 0x2200)])
    report = build_report(s.load(run, s.agent((101, {"signal": 11}), (102, {"signal": 11})), first, later))
    assert judged(report)[0][0] is True
    primary, why = judged(report)[1]
    assert primary is None and why == "died 0.200 s after rank 0; it may be a consequence"


def test_shell_and_parents_pass_a_death_on(run: Path) -> None:
    """sh -c python: 139 of the shell is its child's SIGSEGV."""
    shell = Box(pid=90, ppid=80, argv=["sh", "-c", "python train.py"]).at(900).wait(101, signal=11).exit(139)
    child = Box(pid=101, ppid=90).at(500).crash(addr=0, native=s.NATIVE[:1])
    report = build_report(s.load(run, shell, child))
    assert [(item.pid, item.primary) for item in report.processes or [] if item.primary is not None] == [
        (90, False),
        (101, True),
    ]


def test_other_hosts_are_compared_with_an_error_bar(run: Path) -> None:
    """300 ms between hosts is less than their clocks may differ."""
    near = s.rank(0).at(500).exception("ValueError", "a", [("main", s.SCRIPT, 3)]).exit(1)
    far = s.rank(1, host="node1", boot_id="b0075f00-0000-4000-8000-000000000002").at(800)
    far.exception("ValueError", "b", [("main", s.SCRIPT, 4)]).exit(1)
    report = build_report(s.load(run, near, far))
    assert {primary for primary, _ in judged(report).values()} == {None}


@pytest.mark.parametrize(
    ("code", "sender", "nature"), [(0, 0, "sent"), (0, 7, "sent"), (-6, 0, "abort"), (0, 101, "abort")]
)
def test_signal_from_another_pid_namespace_is_sent(code: int, sender: int, nature: str, run: Path) -> None:
    """Its sender has no number here: SI_USER and pid 0."""
    job = s.load(run, Box(pid=101, ppid=99).at(500).crash(signal=6, code=code, sender_pid=sender))
    clock = RunClock(job)
    (death,) = find_deaths([build_view(0, job.processes[0], clock)], clock)
    assert death.nature == nature
