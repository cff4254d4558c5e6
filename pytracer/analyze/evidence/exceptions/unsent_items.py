"""A get() that waited in vain for what a process had put into a queue: the queue's thread there could not send it."""

from __future__ import annotations

import msgspec

from pytracer.analyze.evidence.waits.unsent import Unsent, unsent_advice, unsent_of
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.kin import children_of
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence

_EMPTY = "Empty"
_QUEUES = "multiprocessing/queues.py"


class UnsentItem(msgspec.Struct, frozen=True):
    """As the explanation of an exception."""

    subject: str
    advice: str
    evidence: Evidence


def unsent_item(job: JobView, view: ProcessView) -> UnsentItem | None:
    """None where no child, and not the process itself, dropped one."""
    own = view.exception
    if own is None or (own.type or "").rpartition(".")[2] != _EMPTY:
        return None
    if not any((frame.file or "").endswith(_QUEUES) for frame in view.exception_stack):
        return None
    found = unsent_of(job, view)
    if found is None or not _is_near(job, view, found):
        return None
    advice = unsent_advice(view, ProcessWait("queue", view.python_frame), found)
    return UnsentItem(found.words, advice, found.evidence)


def _is_near(job: JobView, view: ProcessView, found: Unsent) -> bool:
    return found.own or any(item.index == found.view.index for item in children_of(job, view))
