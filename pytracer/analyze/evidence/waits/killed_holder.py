"""A process that a signal ended inside of a lock between processes: nobody gives it back, and others wait for ever.

A lock of multiprocessing is a semaphore without an owner: the end of the process that took it does not release it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.ends.signal_senders import from_time_limit, sender_words
from pytracer.analyze.evidence.waits.busy import busy_at
from pytracer.analyze.evidence.waits.held_locks import Inside, inside_of, is_one_lock, taken_at, waits_between
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waits import end_of, main_stack, wait_of, waiting_frame
from pytracer.analyze.kin import are_siblings, ended_before, is_helper, is_parent, parent_of
from pytracer.analyze.naming import line_in, name_words, names_words, place_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.platform.signals import SIGHUP, SIGINT, SIGTERM, signal_name
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence, PythonFrame

_SIGNALS = (SIGTERM, SIGINT, SIGHUP)
_BEFORE_NS = 2_000_000_000
_NAMED = 3


class KilledHolder(msgspec.Struct, frozen=True):
    """`waiting`: all that wait for the lock of `inside`, the first one at `at`. `asking`: their parent, if it waits."""

    killed: ProcessView
    inside: Inside
    waiting: tuple[ProcessView, ...]
    at: PythonFrame
    asking: tuple[ProcessView, ProcessWait] | None

    def words(self, job: JobView) -> str:
        """The subject is the killed process."""
        name, by = signal_name(self.killed.process.signal or 0), sender_words(job, self.killed)
        sent = f", sent by {by}," if by else ""
        return (
            f"{name_words([self.killed])} was at {place_words(self.inside.inner)}{self._loop} and held {self._lock} "
            f"when {name}{sent} ended it, so nobody releases that any more; {self._waiting} waited for it at "
            f"{place_words(self.at)}"
        )

    @property
    def advice(self) -> str:
        """Not to end a process so, and not to do in the lock what may take long."""
        inside, sent = self.inside, next((item.frame for item in self.killed.senders if item.frame is not None), None)
        at = f" at {line_in(sent.file, sent.line, inside.inner.file)}" if sent is not None else ""
        did = f"`{inside.inner.function}`" if inside.inner.function else "that"
        called = inside.inner != inside.frame
        here = line_in(inside.frame.file, inside.frame.line, inside.inner.file)
        out = (
            f"Take what takes long out of the lock: {here}, inside of {self._lock}, called {did}, which was at "
            f"{line_in(inside.inner.file, inside.inner.line, inside.inner.file)} then; see why it took so long."
            if called
            else f"Hold {self._lock} for as short as it can be: {here} ran inside of it; see why it took so long."
        )
        return (
            f"{out} A process that is ended by a signal gives no lock of multiprocessing back: do not end{at} one that "
            "may hold it; end it by a message or an Event, or make a new lock, with new workers, after it. "
            "acquire(timeout=...) does not wait for ever."
        )

    @property
    def evidence(self) -> list[Evidence]:
        """Where the killed process was, and each that waits."""
        killed = self.killed.process
        return [
            Evidence(
                "rank-state",
                f"{name_words([self.killed])} was at {place_words(self.inside.frame)}, inside of {self._lock}",
                pid=killed.snapshot.pid,
                rank=killed.rank,
                python=self.inside.frame,
            ),
            *(
                Evidence(
                    "rank-state",
                    f"{name_words([item])} waited for that lock",
                    pid=item.process.snapshot.pid,
                    rank=item.process.rank,
                    python=waiting_frame(item),
                )
                for item in self.waiting[:_NAMED]
            ),
        ]

    @property
    def _loop(self) -> str:
        """`, in the loop `while level < target` (line 9)`."""
        busy, inner = busy_at(self.killed), self.inside.inner
        loop = busy.loop if busy is not None and busy.at == inner else None
        return f", in the loop `while {loop[1]}` ({line_in(inner.file, loop[0], inner.file)})" if loop else ""

    @property
    def _lock(self) -> str:
        here = line_in(self.inside.frame.file, self.inside.line, self.inside.inner.file)
        return f"the lock `{self.inside.lock}` ({here})"

    @property
    def _waiting(self) -> str:
        return names_words(self.waiting)


def killed_holder(job: JobView) -> KilledHolder | None:
    """None where a living process may hold the lock, or the two locks may be different ones."""
    killed = [view for view in job.views if view.process.signal in _SIGNALS and not view.raised]
    waiting = [view for view in job.views if waits_between(view) and from_time_limit(job, view)] if killed else []
    for first in waiting:
        at = waiting_frame(first)
        if at is None or is_library_file(at.file):
            continue
        wanted = taken_at(first, at)
        for view in killed:
            related = are_siblings(view, first) or is_parent(first, view)
            is_gone = related and ended_before(view, first, _BEFORE_NS)
            inside = inside_of(view, main_stack(view), wanted) if is_gone else None
            if inside is None or not is_one_lock(first, at, view, inside) or _is_held(job, view, first, wanted):
                continue
            alike = tuple(item for item in waiting if waiting_frame(item) == at)
            return KilledHolder(view, inside, alike, at, _asking(job, first))
    return None


def _is_held(job: JobView, killed: ProcessView, first: ProcessView, wanted: dict[str, str]) -> bool:
    """Whether another process that ran until then was inside of such a lock, or its stack is not known."""
    for view in job.views:
        is_near = (are_siblings(view, killed) or is_parent(view, killed)) and not is_helper(view)
        if not is_near or ended_before(view, first, _BEFORE_NS):
            continue
        end = end_of(view)
        if not main_stack(view) and end is None:
            return True
        if any(inside_of(view, stack, wanted) is not None for stack in _stacks(view)):
            return True
    return False


def _stacks(view: ProcessView) -> Iterator[Sequence[PythonFrame]]:
    """Of all its threads."""
    end, main = end_of(view), view.process.snapshot.main_pthread
    yield main_stack(view)
    for pthread, frames in end.python_threads if end is not None else ():
        if pthread != main:
            yield [python_frame(item) for item in frames]


def _asking(job: JobView, first: ProcessView) -> tuple[ProcessView, ProcessWait] | None:
    parent = parent_of(job, first)
    wait = wait_of(parent) if parent is not None else None
    return (parent, wait) if parent is not None and wait is not None else None
