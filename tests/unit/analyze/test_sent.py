"""Who sent the signal that ended a process, from the process's own record."""

from __future__ import annotations

from pathlib import Path

from pytracer.analyze.report import Report
from tests.support.scenarios import report_of
from tests.support.synth import Box

TERM, KILL = 15, 9


def rank(number: int, *, pid: int) -> Box:
    """A rank below the agent, process 100."""
    return Box(pid=pid, ppid=100, rank=number, world_size=2).at(1000)


def agent(*ends: tuple[int, int]) -> Box:
    """torchrun's agent, which saw those children end by those signals."""
    box = Box(pid=100, ppid=1, argv=("python", "/venv/bin/torchrun", "train.py")).at(100)
    for position, (pid, number) in enumerate(ends):
        box.at(2000 + 40_000 * position).wait(pid, signal=number)
    return box.at(90_000).exit(1)


def process(report: Report, pid: int):  # type: ignore[no-untyped-def]
    """The process of that pid."""
    return next(item for item in report.processes or () if item.pid == pid)


def test_sender_is_named_with_pid_and_command(tmp_path: Path) -> None:
    """SIGTERM from a process outside of the job: certain, and in the JSON too."""
    box = Box(pid=200, ppid=1).at(1000).signal_seen(TERM, 4242, ("python", "reaper.py"))
    parent = Box(pid=1, ppid=0, argv=("sh",)).at(2000).wait(200, signal=TERM)
    report = report_of(tmp_path, box, parent)
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.confidence) == ("external-kill", "certain")
    assert "process 4242 (reaper.py)" in (report.verdict.summary or "")
    signal = process(report, 200).signal
    assert (signal.sender_pid, signal.sender_command) == (4242, ["python", "reaper.py"])


def test_follower_of_the_agents_signal_is_proven(tmp_path: Path) -> None:
    """Without the record the agent is probably the sender; with it, it is; another sender is no teardown."""
    for sender, words in ((None, "probably ended by torchrun's agent"), (100, "ended by torchrun's agent"), (77, None)):
        victim = rank(1, pid=201).crash(addr=0)
        other = rank(0, pid=200)
        if sender is not None:
            other.at(1900).signal_seen(TERM, sender)
        directory = tmp_path / str(sender)
        directory.mkdir()
        report = report_of(directory, agent((201, 11), (200, TERM)), other, victim)
        why = process(report, 200).why or ""
        assert why.startswith(words) if words else "agent" not in why, why
