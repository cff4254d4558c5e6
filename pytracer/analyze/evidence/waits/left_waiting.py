"""A parent that went on waiting for what its child, which had died, was to send or do: it was ended from outside later.

join() of a queue waits for one task_done() for each item. A worker that an exception ends does not make the call for
the item that it had taken; what is left in the queue nobody takes once all workers are gone.
"""

from __future__ import annotations

import msgspec

from pytracer.analyze.evidence.ends.signal_senders import from_time_limit
from pytracer.analyze.evidence.waits.missed_marks import MissedMark, missed_mark
from pytracer.analyze.evidence.waits.undone_items import DONE, asks_for_item, serves_manager
from pytracer.analyze.evidence.waits.wait_chain import at_words
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait, WaitKind
from pytracer.analyze.evidence.waits.wait_words import wait_words
from pytracer.analyze.evidence.waits.waited_object import waited_object
from pytracer.analyze.evidence.waits.waits import is_between_processes, wait_of
from pytracer.analyze.kin import children_of, ended_before, is_server
from pytracer.analyze.naming import line_in, name_words
from pytracer.analyze.view import JobView, ProcessView

_KINDS: tuple[WaitKind, ...] = ("queue", "message", "pool", "undone")
_OF_QUEUES: tuple[WaitKind, ...] = ("queue", "undone")
_LEAST_NS = 2_000_000_000
_NOTICES: dict[WaitKind, str] = {
    "queue": "get(timeout=...)",
    "message": "poll(timeout) before recv()",
    "pool": "get(timeout=...)",
}


class LeftWaiting(msgspec.Struct, frozen=True):
    """The parent, and what it waited for when a time limit ended it.

    `missed`: of the child's item, in join() of a queue. `idle`: how many other children asked for an item then.
    `here`: the file of the exception.
    """

    parent: ProcessView
    wait: ProcessWait
    missed: MissedMark | None = None
    idle: int = 0
    here: str | None = None

    @property
    def words(self) -> str:
        """`; its parent, process 45 (train.py), waited for a queue at train.py:62 in learn until it was ended`."""
        waited = f"{wait_words(self.parent, self.wait)}{at_words(self.wait)}"
        why = f": {self._why}" if self.wait.kind == "undone" else ", while its other children waited for an item"
        why = why if self.wait.kind == "undone" or self.idle else ""
        return f"; its parent, {name_words([self.parent])}, {waited} until a time limit ended it{why}"

    @property
    def advice(self) -> str:
        """How the parent would have noticed."""
        line = self.wait.at.line if self.wait.at is not None else None
        if self.wait.kind != "undone":
            where = f" at line {line}" if line else ""
            notices = _NOTICES[self.wait.kind]
            return f"With {notices} and `is_alive()` of the child{where}, the parent notices such an end."
        mark = ""
        if self.missed is not None:
            mark = (
                f"In {self.missed.function} catch the error of one item and send it to the parent, with "
                f"`{self.missed.call}` ({self._line(self.missed.file, self.missed.line)}) in a `finally`. "
            )
        join = f"join() at {self._line(self.wait.at.file, line)}" if self.wait.at is not None and line else "join()"
        loop = "wait in a loop that looks at the workers' `exitcode`"
        return f"{mark}{join} has no timeout and notices no death: in place of it {loop}."

    @property
    def _why(self) -> str:
        """What keeps join() from its end."""
        if self.missed is None and self.idle:
            return f"its other children waited for an item, so that nobody calls {DONE}() any more"
        if self.missed is None:
            return f"no worker was left that takes items and calls {DONE}()"
        skips = f"the exception skips `{self.missed.call}` ({self._line(self.missed.file, self.missed.line)})"
        return skips if self.idle else f"{skips}, and no worker was left that takes items"

    def _line(self, file: str | None, line: int | None) -> str:
        """With its file where the sentence is about two."""
        one = self.wait.at is not None and self.wait.at.file == self.here
        return line_in(file, line, self.here if one else None)


def left_waiting(job: JobView, child: ProcessView) -> LeftWaiting | None:
    """None where the parent ended soon after, noticed by itself, or still had a child that could answer."""
    parent = next((item for item in job.views if any(one.index == child.index for one in children_of(job, item))), None)
    if parent is None or parent.raised or not ended_before(child, parent, _LEAST_NS):
        return None
    if not from_time_limit(job, parent):
        return None
    wait = wait_of(parent)
    if wait is None or wait.kind not in _KINDS or (wait.kind in _OF_QUEUES and not is_between_processes(parent)):
        return None
    others = [item for item in children_of(job, parent) if not (serves_manager(item) or is_server(item))]
    alive = [item for item in others if not ended_before(item, parent, _LEAST_NS)]
    here = child.python_frame.file if child.python_frame is not None else None
    if alive and (wait.kind not in _OF_QUEUES or not all(asks_for_item(item) for item in alive)):
        return None
    missed = _missed(child, parent, wait) if wait.kind == "undone" else None
    if wait.kind == "undone" and alive and missed is None and child.raised:
        return None  # the line of its exception shows no item
    return LeftWaiting(parent, wait, missed, len(alive), here)


def _missed(child: ProcessView, parent: ProcessView, wait: ProcessWait) -> MissedMark | None:
    thing = waited_object(parent, wait)
    names = thing.names if thing is not None else frozenset()
    return missed_mark(child, wait.at.file if wait.at is not None else None, names)
