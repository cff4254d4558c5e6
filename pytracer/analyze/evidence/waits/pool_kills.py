"""A worker of a multiprocessing pool that a line of the program killed: its sender, the condition, and what to do.

A pool ends its own workers by SIGTERM, from pool.py: whatever it waits for then is not lost by that. What another line
of its process sends, such as a thread that watches memory, ends a worker whose task the pool goes on to wait for. That
it does shows by a worker beside the killed one that went on, or by one that the pool started in its place.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.evidence.ends.kill_reasons import kill_condition, reason_words
from pytracer.analyze.evidence.ends.memory_limits import MemoryLimit, memory_limit, most_memory, used_words
from pytracer.analyze.evidence.ends.sent_signals import deadly_signal
from pytracer.analyze.evidence.ends.signal_senders import sender_is_sure, senders_words
from pytracer.analyze.naming import place_words
from pytracer.analyze.platform.signals import SIGKILL, SIGTERM, signal_name
from pytracer.analyze.view import JobView, ProcessView, RecordedSender
from pytracer.report.job import PythonFrame

_POOL = Pattern(r"/multiprocess(?:ing)?/pool\.py$")
_STARTS_ANEW = "_maintain_pool"
_LESS = "Let a task need less memory (smaller inputs, or pieces of them), {}use fewer processes at once"


class PoolKill(msgspec.Struct, frozen=True):
    """`by`: `this process itself, at a.py:28 in Watch.run`; `below`: where that line does so.

    `most`: bytes that the worker had at most, where a condition about memory decided.
    """

    signal: str
    by: str
    at: PythonFrame
    below: str | None
    limit: MemoryLimit | None
    most: int | None

    @property
    def words(self) -> str:
        """`` by SIGKILL, sent by this process itself, at a.py:28 in run, where `rss > share` holds (line 27) ``."""
        most = used_words(self.most)
        used = f", when it had {most}" if most is not None else ""
        return f"by {self.signal}, sent by {self.by}{reason_words(self.below, self.limit)}{used}"

    @property
    def advice(self) -> str:
        """What to do about the line that sends it."""
        if self.limit is not None:
            raising = self.limit.raising
            return f"{_LESS.format('')}, or {raising}" if raising is not None else f"{_LESS.format('or ')}."
        where = f" {self.below}" if self.below is not None else ""
        return f"Look at {place_words(self.at)}: it sends {self.signal}{where}, also to a worker inside of a task."


def pool_kill(job: JobView, parent: ProcessView, worker: ProcessView) -> PoolKill | None:
    """Of a worker that a known line of the program ended; None of what the pool itself, or somebody unknown, did."""
    sent = _sent(worker)
    if sent is None or sent.frame is None or not sender_is_sure(worker):
        return None
    below = kill_condition(sent)
    limit = memory_limit(sent)
    of_pool = sent.sender.snapshot.pid == parent.process.snapshot.pid
    return PoolKill(
        signal_name(sent.send.signal),
        f"this process itself, at {place_words(sent.frame)}" if of_pool else senders_words(job, worker),
        sent.frame,
        below,
        limit,
        most_memory(job, worker) if limit is not None else None,
    )


def is_dismissed(parent: ProcessView, worker: ProcessView, workers: Sequence[ProcessView], until: int) -> bool:
    """Whether the process of the pool ended it, and nothing shows that the pool still waits for its task."""
    sent = deadly_signal(worker)
    if sent is None or sent.sender_pid != parent.process.snapshot.pid:
        return False
    return _sent(worker) is None or not _goes_on(worker, workers, until)


def _sent(worker: ProcessView) -> RecordedSender | None:
    """What a line of the program sent to end it."""
    if worker.process.signal not in (SIGKILL, SIGTERM) or not worker.senders:
        return None
    sent = worker.senders[0]
    stack = sent.send.stack
    is_own = any(not is_library_file(frame.file) for frame in stack)
    return sent if is_own and not any(_POOL.search(frame.file or "") for frame in stack) else None


def _goes_on(worker: ProcessView, workers: Sequence[ProcessView], until: int) -> bool:
    """Whether its pool does, by a worker that ran beside it to the end, or one that the pool started in its place."""
    ended = worker.process.ended_mono_ns or 0
    for item in workers:
        begun, end = item.process.snapshot.created_mono_ns, item.process.ended_mono_ns
        if item is worker or (end is not None and end < until):
            continue
        if begun < ended or _is_in_place(item):
            return True
    return False


def _is_in_place(worker: ProcessView) -> bool:
    """Whether the thread of the pool that watches its workers had started it."""
    names = ((frame.function or "").rpartition(".")[2] for frame in worker.python_stack or ())
    return _STARTS_ANEW in names
