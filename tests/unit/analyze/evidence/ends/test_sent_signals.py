"""The sender of the signal that ended a process, from the process's own record."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytracer.analyze.engine import build_report
from tests.support import scenarios as s

AGENT, TERM = 100, 15


def test_sender_is_named_with_pid_and_command(run: Path) -> None:
    """SIGTERM from a process outside of the job: certain, and in the JSON too."""
    ended = s.rank(1).at(500).signal_seen(TERM, 4242, ("python", "reaper.py"))
    report = build_report(s.load(run, s.agent((102, {"signal": TERM})), ended))
    assert report.verdict is not None
    assert (report.verdict.class_, report.verdict.confidence) == ("external-kill", "certain")
    assert "process 4242 (reaper.py)" in (report.verdict.summary or "")
    (process,) = [item for item in report.processes or () if item.pid == 102]
    assert process.signal is not None
    assert (process.signal.code, process.signal.sender_pid) == ("SI_USER", 4242)
    assert process.signal.sender_command == ["python", "reaper.py"]


@pytest.mark.parametrize(
    ("sender", "begins"), [(None, "probably ended by torchrun's agent"), (AGENT, "ended by torchrun's agent"), (77, "")]
)
def test_follower_of_the_agents_signal_is_proven_by_its_sender(sender: int | None, begins: str, run: Path) -> None:
    """Without the record the agent is probably the sender; with it, it is; another sender is no teardown."""
    first = s.rank(0).at(500).exception("ValueError", "bad", [("main", s.SCRIPT, 3)]).exit(1)
    ended = s.rank(1).at(600).mark("still running")
    if sender is not None:
        ended.at(2000).signal_seen(TERM, sender)
    report = build_report(s.load(run, s.agent((101, {"exit_code": 1}), (102, {"signal": TERM})), first, ended))
    (process,) = [item for item in report.processes or () if item.pid == 102]
    if begins:
        assert process.primary is False
        assert (process.why or "").startswith(begins)
    else:
        assert "agent" not in (process.why or "")
