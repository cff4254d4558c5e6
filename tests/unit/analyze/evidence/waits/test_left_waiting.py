"""A parent that went on waiting for what its child, which had died, was to send, and what looks like that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import scenarios as s
from tests.support.deaths import advice, summary, verdict
from tests.support.standing import ended, parent, stopped
from tests.support.synth import Box, Frame

GET: list[Frame] = [("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 103), ("learn", s.SCRIPT, 12)]
IN_PROCESS: list[Frame] = [("Queue.get", "/usr/lib/python3.11/queue.py", 171), ("learn", s.SCRIPT, 12)]
WORK: list[Frame] = [("step", s.SCRIPT, 30)]


def actor(pid: int = 102, at: int = 5_000) -> Box:
    """A child that raised."""
    return Box(pid=pid, ppid=101).at(at).exception("ValueError", "no such key", [("play", s.SCRIPT, 40)]).exit(1)


def test_parent_that_waited_for_a_dead_child_is_told(run: Path) -> None:
    """The exception is the verdict; that nobody noticed is the second trouble."""
    report = ended(run, stopped(parent(), GET), actor())
    assert verdict(report) == ("python-exception", "certain")
    assert (
        "at train.py:40 in play; its parent, process 101 (train.py), waited for a queue at train.py:12 in learn until "
        "a time limit ended it."
    ) in summary(report)
    assert advice(report).endswith(
        "With get(timeout=...) and `is_alive()` of the child at line 12, the parent notices such an end."
    )


@pytest.mark.parametrize(
    "boxes",
    [
        [stopped(parent(), GET), actor(at=59_500)],  # it was about to notice
        [stopped(parent(), GET), actor(), Box(pid=103, ppid=101).at(59_900).exit(0)],  # another one could send
        [stopped(parent(), IN_PROCESS), actor()],  # a queue of its own threads
        [stopped(parent(), WORK), actor()],  # it worked on
        [stopped(parent(), GET, by=["kubelet"]), actor()],  # somebody stopped the job
    ],
    ids=["at once", "another child", "own queue", "at work", "stopped"],
)
def test_parent_that_did_something_else_is_not_blamed(boxes: list[Box], run: Path) -> None:
    """The look-alikes."""
    report = ended(run, *boxes)
    assert "until a time limit ended it" not in summary(report)
    assert "the parent notices such an end" not in advice(report)
