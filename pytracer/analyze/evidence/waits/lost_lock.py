"""The lock of a multiprocessing queue that a killed process took with it: who reads from the queue waits for ever.

Queue.get() takes the read lock, then waits for an object. A process that is killed there never gives the lock back.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.ends.signal_senders import from_time_limit, sender_words
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waited_object import waited_object
from pytracer.analyze.evidence.waits.waits import main_stack, wait_of, waiting_frame
from pytracer.analyze.kin import are_siblings, ended_before, parent_of
from pytracer.analyze.naming import name_words, names_words, place_words
from pytracer.analyze.platform.signals import SIGKILL, SIGTERM, signal_name
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence, PythonFrame

_LOCK, _GET = "SemLock.__enter__", Pattern(r"(Simple)?Queue\.get$")
_FILE = Pattern(r"/multiprocess(?:ing)?/queues\.py$")
_BEFORE_NS = 2_000_000_000
_NEAR = 8  # frames
_NAMED = 3


class LostLock(msgspec.Struct, frozen=True):
    """`waiting`: all that wait for the lock at the line `at`. `asking`: their parent, which waits for an answer."""

    killed: ProcessView
    waiting: tuple[ProcessView, ...]
    at: PythonFrame | None
    name: str | None
    asking: ProcessView
    wait: ProcessWait

    @property
    def words(self) -> str:
        """What comes after the wait of their parent."""
        names = names_words(self.waiting)
        queue = f"the queue `{self.name}`" if self.name is not None else "a queue"
        at = f" at {place_words(self.at)}" if self.at is not None else ""
        return f"{names} waited for the read lock of {queue}{at}, which none of them held"

    def killed_words(self, job: JobView) -> str:
        """`Process-1 (pid 8), which may have held it, had been ended by SIGKILL before, sent by ... at train.py:33`."""
        by = sender_words(job, self.killed)
        sent = f", sent by {by}" if by else ""
        name = signal_name(self.killed.process.signal or 0)
        return f"{name_words([self.killed])}, which may have held it, had been ended by {name} before{sent}"

    @property
    def advice(self) -> str:
        """How to end a reader of a queue."""
        line = _at(self.killed)
        return (
            "A process that is killed inside Queue.get() never gives the queue's lock back: end such a worker by a "
            f"message (put(None), which it takes as its end) and join(), in place of kill() or terminate(){line}; or "
            "give each worker a queue of its own, and make a new one when its worker was killed."
        )

    @property
    def evidence(self) -> list[Evidence]:
        """Each that waits."""
        return [
            Evidence(
                "rank-state",
                f"{name_words([item])} waited for the read lock of a queue",
                pid=item.process.snapshot.pid,
                rank=item.process.rank,
                python=self.at,
            )
            for item in self.waiting[:_NAMED]
        ]


def lost_lock(job: JobView) -> LostLock | None:
    """None where a living process may hold the lock, or none was killed before."""
    waiting = [view for view in job.views if _waits_for_lock(view) and from_time_limit(job, view)]
    if not waiting:
        return None
    at = waiting_frame(waiting[0])
    if at is None or is_library_file(at.file):  # the workers of a pool: who reads for them is not known by a line
        return None
    mine = [view for view in waiting if are_siblings(view, waiting[0]) and waiting_frame(view) == at]
    if any(_may_hold(view, at) for view in job.views if view not in mine and are_siblings(view, mine[0])):
        return None
    killed = [
        view
        for view in job.views
        if are_siblings(view, mine[0])
        and view.process.signal in (SIGKILL, SIGTERM)
        and ended_before(view, mine[0], _BEFORE_NS)
    ]
    asking = parent_of(job, mine[0])
    wait = wait_of(asking) if asking is not None else None
    if not killed or asking is None or wait is None or wait.kind not in ("queue", "pool", "workers", "child", "notice"):
        return None
    wanted = ProcessWait("queue", at)
    thing = waited_object(mine[0], wanted)
    theirs = waited_object(asking, wait)
    if wait.kind == "queue" and (thing is None or theirs is None or theirs.last in thing.names):
        return None  # it may read from the same queue
    return LostLock(killed[-1], tuple(mine), at, thing.name if thing is not None else None, asking, wait)


def _gets(stack: Sequence[PythonFrame]) -> int | None:
    """Where the get() of a queue is in a stack."""
    near = enumerate(stack[:_NEAR])
    return next((n for n, item in near if _GET.match(item.function or "") and _FILE.search(item.file or "")), None)


def _waits_for_lock(view: ProcessView) -> bool:
    stack = main_stack(view)
    place = _gets(stack)
    return place is not None and place > 0 and stack[place - 1].function == _LOCK


def _may_hold(view: ProcessView, at: PythonFrame | None) -> bool:
    """Whether a sibling, not killed before, was at the same line and beyond the lock, or its stack is not known."""
    if view.process.signal == SIGKILL or view.process.status_kind == "exited":
        return False
    stack = main_stack(view)
    inside = _gets(stack) is not None and not _waits_for_lock(view) and waiting_frame(view) == at
    return inside or not stack


def _at(view: ProcessView) -> str:
    frame = next((item.frame for item in view.senders if item.frame is not None), None)
    return f" at {place_words(frame)}" if frame is not None else ""
