"""A parent that went on waiting for what its child, which had died, was to send: it was ended from outside later."""

from __future__ import annotations

import msgspec

from pytracer.analyze.evidence.ends.signal_senders import from_time_limit
from pytracer.analyze.evidence.waits.wait_chain import at_words
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait, WaitKind
from pytracer.analyze.evidence.waits.wait_words import wait_words
from pytracer.analyze.evidence.waits.waits import is_between_processes, wait_of
from pytracer.analyze.kin import children_of
from pytracer.analyze.naming import name_words
from pytracer.analyze.view import JobView, ProcessView

_KINDS: tuple[WaitKind, ...] = ("queue", "message", "pool")
_LEAST_NS = 2_000_000_000
_NOTICES: dict[WaitKind, str] = {
    "queue": "get(timeout=...)",
    "message": "poll(timeout) before recv()",
    "pool": "get(timeout=...)",
}


class LeftWaiting(msgspec.Struct, frozen=True):
    """The parent, and what it waited for when a time limit ended it."""

    parent: ProcessView
    wait: ProcessWait

    @property
    def words(self) -> str:
        """`; its parent, process 45 (train.py), waited for a queue at train.py:62 in learn until it was ended`."""
        waited = f"{wait_words(self.parent, self.wait)}{at_words(self.wait)}"
        return f"; its parent, {name_words([self.parent])}, {waited} until a time limit ended it"

    @property
    def advice(self) -> str:
        """How the parent would have noticed."""
        where = f" at line {self.wait.at.line}" if self.wait.at is not None and self.wait.at.line else ""
        return f"With {_NOTICES[self.wait.kind]} and `is_alive()` of the child{where}, the parent notices such an end."


def left_waiting(job: JobView, child: ProcessView) -> LeftWaiting | None:
    """None where the parent ended soon after, noticed by itself, or still had a child that could send."""
    parent = next((item for item in job.views if any(one.index == child.index for one in children_of(job, item))), None)
    if parent is None or parent.ended_ns is None or child.ended_ns is None:
        return None
    if parent.raised or parent.ended_ns - child.ended_ns < _LEAST_NS or not from_time_limit(job, parent):
        return None
    wait = wait_of(parent)
    if wait is None or wait.kind not in _KINDS or (wait.kind == "queue" and not is_between_processes(parent)):
        return None
    alive = [item for item in children_of(job, parent) if item.ended_ns is None or item.ended_ns > child.ended_ns]
    return LeftWaiting(parent, wait) if not alive else None
