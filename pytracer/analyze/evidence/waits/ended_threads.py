"""Threads that an exception ended while their process went on: whoever waits for such a thread waits for ever."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.deaths.ending import asked_to_end
from pytracer.analyze.evidence.phrases import error_words
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait, WaitKind
from pytracer.analyze.naming import place_words
from pytracer.analyze.parts import innermost_of_program
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import PythonFrame as SnapshotFrame
from pytracer.report.job import Evidence, PythonFrame, ThreadExceptionReport

_LISTED = 3
_IN_PROCESS: tuple[WaitKind, ...] = ("queue", "full-queue", "notice")
_FOR_A_THREAD: tuple[WaitKind, ...] = (*_IN_PROCESS, "pool", "workers", "lock", "thread", "thread-at-exit")
_POOL = Pattern(r"/multiprocess(?:ing)?/pool\.py$")
_BETWEEN_PROCESSES = Pattern(r"/multiprocess(?:ing)?/\w+\.py$")
# What waiting with a limit raises, and torch when the thread that pins batches is gone.
_GAVE_UP = Pattern(r"\b(Empty|Full|TimeoutError|BrokenBarrierError)$")
_OF_EXECUTOR = Pattern(r"/(threading|queue|concurrent/futures/thread)\.py$")
_RECEIVES = Pattern(r"/multiprocess(?:ing)?/connection\.py$")
LOADED = (
    "It could not load what a worker had sent: a result, or an exception of a task, whose class the message names. "
    "Make that picklable (see its __init__, __reduce__ and __setstate__), or return and raise plain values."
)
_PIN_THREAD = "Pin memory thread exited"


class EndedThread(msgspec.Struct, frozen=True):
    """The thread that somebody waits for. `sure`: nobody else in the process could have done its work."""

    report: ThreadExceptionReport
    sure: bool

    @property
    def words(self) -> str:
        """See ended_words."""
        return ended_words(self.report)

    @property
    def advice(self) -> str:
        """Nobody is told of the end of a thread that one waits for."""
        frame = frame_of(self.report)
        at = f" at {place_words(frame)}" if frame is not None else ""
        loaded = f" {LOADED}" if self.loads else ""
        return f"Look at {error_words(self.report)}{at} first: it ended that thread, and only that thread.{loaded}"

    @property
    def loads(self) -> bool:
        """Whether the thread loaded what another process had sent."""
        stack = self.report.python_stack or ()
        return any(_RECEIVES.search(item.file or "") and (item.function or "").endswith("recv") for item in stack)


def ended_words(report: ThreadExceptionReport) -> str:
    """`its thread Thread-1 (write) had died of KeyError: 2 at train.py:15 in write`."""
    frame = frame_of(report)
    return f"{died_words(report)}{f' at {place_words(frame)}' if frame else ''}"


def died_words(report: ThreadExceptionReport, role: str = "") -> str:
    """The same without the line: `its thread Thread-3 (_handle_results) had died of TypeError: ...`."""
    return f"its thread{f' {report.thread}' if report.thread else ''}{role} had died of {error_words(report)}"


def frame_of(report: ThreadExceptionReport) -> PythonFrame | None:
    """The innermost line of the program itself, else the innermost one."""
    return innermost_of_program(report.python_stack or ())


def thread_behind(view: ProcessView, wait: ProcessWait) -> EndedThread | None:
    """The thread whose end explains why a process waits; the last one that ended, of several."""
    if wait.kind not in _FOR_A_THREAD or not view.thread_exceptions:
        return None
    if wait.kind in ("pool", "workers"):
        own = [item for item in view.thread_exceptions if _is_of_pool(item.python_stack or ())]
        return EndedThread(own[-1], True) if own else None
    return EndedThread(view.thread_exceptions[-1], wait.kind in _IN_PROCESS and no_other_could(view))


def lost_results(view: ProcessView, wait: ProcessWait) -> bool:
    """Whether a process waits for a pool whose thread that takes results is gone, by an error or without a word."""
    return wait.kind in ("pool", "workers") and (thread_behind(view, wait) is not None or lacks_receiver(view))


def lacks_receiver(view: ProcessView) -> bool:
    """Whether a pool's thread that receives results has ended, while its other threads run.

    CPython 3.10 to 3.14, pool.py, Pool._handle_results: an OSError or EOFError ends it without a word, such as of a
    tensor whose sender has ended.
    """
    ending = asked_to_end(view.process)
    stacks = ending.python_threads if ending is not None else ()
    run = {
        (frame.function or "").rpartition(".")[2]
        for _, frames in stacks
        for frame in frames
        if _POOL.search(frame.file)
    }
    return "_handle_workers" in run and "_handle_tasks" in run and "_handle_results" not in run


def thread_behind_exception(view: ProcessView) -> EndedThread | None:
    """The thread that a process had waited for until it gave up, by the exception that ended the process."""
    exception = view.exception
    if not view.raised or exception is None or not view.thread_exceptions:
        return None
    gave_up = _GAVE_UP.search(exception.type or "") or _PIN_THREAD in (exception.message or "")
    return EndedThread(view.thread_exceptions[-1], False) if gave_up else None


def ended_thread_evidence(view: ProcessView) -> list[Evidence]:
    """All threads of the process that an exception ended."""
    return [
        Evidence(
            "thread-exception",
            f"{ended_words(item)[len('its ') :]}, which ended that thread only",
            pid=view.process.snapshot.pid,
            rank=view.process.rank,
            tid=item.tid,
            thread=item.thread,
            exception=item.type,
            text=item.message,
            python=frame_of(item),
            time=item.time,
        )
        for item in view.thread_exceptions[-_LISTED:]
    ]


def _is_of_pool(stack: Sequence[PythonFrame]) -> bool:
    """A thread by which a pool hands out tasks or takes results."""
    return any(
        _POOL.search(frame.file or "") and (frame.function or "").rpartition(".")[2].startswith("_handle_")
        for frame in stack
    )


def no_other_could(view: ProcessView) -> bool:
    """Whether the process waits for something in its own memory, and no other thread of it runs Python.

    A thread of an executor between two tasks does nothing that it is not given.
    """
    near = (view.python_stack or [])[:8]
    if any(_BETWEEN_PROCESSES.search(frame.file or "") for frame in near):
        return False
    ending = asked_to_end(view.process)
    stacks = ending.python_threads if ending is not None else ()
    return bool(stacks) and sum(not _is_between_tasks(frames) for _, frames in stacks) == 1


def _is_between_tasks(frames: Sequence[SnapshotFrame]) -> bool:
    """Whether an executor's thread waits for its next task: it has no line of the program, and has asked its queue."""
    return bool(frames) and all(_OF_EXECUTOR.search(item.file) for item in frames)
