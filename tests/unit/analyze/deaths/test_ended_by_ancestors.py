"""What a program ended below a helper of its own: no death where it ended the helper, too; and the look-alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import scenarios as s
from tests.support.deaths import summary
from tests.support.standing import ended, parent, stopped
from tests.support.synth import Box, Frame
from tests.unit.analyze.deaths.test_helpers_and_senders import primary

WAITS: list[Frame] = [("Event.wait", "/usr/lib/python3.11/threading.py", 629), ("main", s.SCRIPT, 29)]
COMMAND = ["python", "train.py"]


def killed(box: Box) -> Box:
    """By SIGTERM of process 101, 10 s after its start."""
    box.at(10_000).signal_seen(15, 101, COMMAND)
    return box.crash(signal=15, code=0, sender_pid=101, python=[("work", s.SCRIPT, 7)], native=())


@pytest.mark.parametrize("lost", [False, True])
def test_process_between_may_have_lost_what_was_ended(lost: bool, run: Path) -> None:
    """The worker of a helper is ended: with the helper, in order; alone, the helper raises for it."""
    helper = Box(pid=102, ppid=101, argv=COMMAND).versions(python="3.11.7").at(200)
    worker = killed(Box(pid=103, ppid=102, argv=COMMAND).versions(python="3.11.7").at(300))
    if lost:
        helper.at(10_010).wait(103, signal=15)
        helper.at(10_050).exception("EOFError", "worker 103 ended", [("recv", s.SCRIPT, 44)]).exit(1)
    else:
        killed(helper)
    report = ended(run, stopped(parent().at(100), WAITS), helper, worker)
    assert (primary(report).get(103) is False) == (not lost), summary(report)
