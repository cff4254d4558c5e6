"""How a process stood still that was ended from outside: what it waited for, what is known of that, what to do."""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import time_words
from pytracer.analyze.deaths.ending import asked_to_end
from pytracer.analyze.evidence.cuda.device_waits import DeviceWait
from pytracer.analyze.evidence.exceptions.handled import Handled
from pytracer.analyze.evidence.exceptions.loaders import loading_since
from pytracer.analyze.evidence.exceptions.unmade import UnmadeError
from pytracer.analyze.evidence.exceptions.unmade_results import UnmadeResult
from pytracer.analyze.evidence.limits.slow_patterns import SlowPattern, pattern_at
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.waits.ended_fillers import EndedFiller
from pytracer.analyze.evidence.waits.ended_readers import EndedReader
from pytracer.analyze.evidence.waits.ended_threads import EndedThread
from pytracer.analyze.evidence.waits.executor_words import executor_words
from pytracer.analyze.evidence.waits.exited_workers import ExitedWorkers
from pytracer.analyze.evidence.waits.failed_task import FailedTask
from pytracer.analyze.evidence.waits.fork_line import fork_line
from pytracer.analyze.evidence.waits.forked_locks import ForkedLock
from pytracer.analyze.evidence.waits.forked_pool_words import pool_words
from pytracer.analyze.evidence.waits.full_output import full_output_advice
from pytracer.analyze.evidence.waits.held_by_parent import HeldByParent
from pytracer.analyze.evidence.waits.interop_threads import started_words
from pytracer.analyze.evidence.waits.killed_holder import KilledHolder
from pytracer.analyze.evidence.waits.left_children import LeftChildren
from pytracer.analyze.evidence.waits.library_threads import LibraryThread
from pytracer.analyze.evidence.waits.lock_order import CrossedLocks, LockHolder
from pytracer.analyze.evidence.waits.lost_lock import LostLock
from pytracer.analyze.evidence.waits.lost_tasks import LostTask
from pytracer.analyze.evidence.waits.messages import BothWait, gone_advice
from pytracer.analyze.evidence.waits.network_waits import answer_words
from pytracer.analyze.evidence.waits.parent_death import LostSpawner
from pytracer.analyze.evidence.waits.parent_threads import ParentThread
from pytracer.analyze.evidence.waits.pool_results import EndedReceiver
from pytracer.analyze.evidence.waits.queue_takers import SharedQueue
from pytracer.analyze.evidence.waits.standing_threads import ThreadReason
from pytracer.analyze.evidence.waits.starved_pool import StarvedPool
from pytracer.analyze.evidence.waits.starved_rpc import StarvedRpc
from pytracer.analyze.evidence.waits.stuck_loading import stuck_loading_advice, stuck_loading_words
from pytracer.analyze.evidence.waits.unasked_tasks import UnaskedTasks
from pytracer.analyze.evidence.waits.undone_items import UndoneItems
from pytracer.analyze.evidence.waits.unread_at_exit import UnreadAtExit
from pytracer.analyze.evidence.waits.unread_queues import unread_queue
from pytracer.analyze.evidence.waits.unsent import Unsent, unsent_advice
from pytracer.analyze.evidence.waits.untaken_queues import UntakenQueue
from pytracer.analyze.evidence.waits.untold_ends import error_advice, telling_advice
from pytracer.analyze.evidence.waits.wait_advice import ADVICE, read_later, wait_advice
from pytracer.analyze.evidence.waits.wait_chain import (
    meanwhile_words,
    polled_advice,
    work_words,
)
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait, WaitKind
from pytracer.analyze.evidence.waits.waited_object import ahead_advice, left_out_put, waited_object
from pytracer.analyze.evidence.waits.waits import gil_of
from pytracer.analyze.naming import names_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_NOT_PUT = (
    "They ended without putting what is waited for. What cannot be pickled (a lambda, a local function, an open file) "
    "fails in the queue's own thread, whose traceback goes to stderr, or nowhere if the process is just ending: put "
    "plain data. Or they returned before put(), or more is asked for here than they put: compare both counts"
)
_OF_POOL = ", or the error of a pool's task is in what apply_async() or submit() returned: ask for it there"
_LOOKS = ". get(timeout=...), and a look at is_alive(), end such a wait."
_TASKS = ("apply_async", "map_async", "starmap_async", "submit", "imap", "imap_unordered")
_WORKING = "If that child is only slow, raise the time limit; else see what it does there without end."
_LOADING = (
    "Time that batch in one process: `dataset[i]` for its samples, with num_workers=0. If it is only slow, raise the "
    "time limit, load less per sample, or use more workers; if it does not come back, look at what it waits for there. "
    "The DataLoader's own `timeout` ends such a wait by an error."
)
UNREAD: dict[WaitKind, str] = {"unread-queue": "its queue is read", "full-pipe": "what it sends is received"}
_LIMIT: dict[WaitKind, str] = {
    "queue": "get(timeout=...) raises instead of waiting for ever.",
    "full-queue": "put(timeout=...) raises instead of waiting for ever.",
    "notice": "wait(timeout=...) or result(timeout=...) does not wait for ever.",
    "pool": "get(timeout=...) ends such a wait.",
}


class Stood(msgspec.Struct, frozen=True):
    """The wait at the end of the chain, who waits for that process, and the process that the signal ended first.

    `thread`: of the process, ended by an exception before, that may be waited for.
    """

    wait: ProcessWait
    waiting: tuple[tuple[ProcessView, ProcessWait], ...]
    ended: ProcessView
    thread: EndedThread | None = None
    handled: Handled | None = None
    receiver: EndedReceiver | None = None
    """Of a pool whose thread that receives results is missing."""
    gone: tuple[ProcessView, ...] = ()
    """All children of a process that waits for a queue between processes: nobody is left to fill it."""
    locks: CrossedLocks | None = None
    loading: ProcessView | None = None
    """The DataLoader worker that was inside a batch for longest, of a process that waited for its loader."""
    unsent: Unsent | None = None
    """What could not be sent through a queue, of a process that waited for one."""
    starved: StarvedPool | None = None
    working: tuple[ProcessView, ...] = ()
    """Children at work, of a process that waited for what comes from another one."""
    lost: LostLock | None = None
    holder: LockHolder | None = None
    task: FailedTask | None = None
    together: int = 0
    """How many processes waited at its line of a Barrier, or for threads of a library there."""
    alone: bool = False
    """Whether no other thread could have ended the wait in its own memory."""

    device: DeviceWait | None = None
    both: BothWait | None = None
    """Children that wait for a message as it does."""
    forked: ForkedLock | None = None
    """The lock that a forked child waited for."""
    unasked: UnaskedTasks | None = None
    """Tasks of a pool whose errors nobody sees, of a process that waited for a queue between processes."""
    without: LostTask | None = None
    """A worker of the pool that had ended inside of a task."""
    untaken: UntakenQueue | None = None
    """The full queue that it alone takes from, of a parent that waits for a child in its put()."""

    unread_by: SharedQueue | None = None
    """Of a parent that alone takes from the queue whose thread its child waits for."""
    reader: EndedReader | None = None
    """Of a child that took from that queue, and had ended."""

    started: ParentThread | LibraryThread | None = None
    """What a forked child waited for, and its parent had started."""
    unmade: UnmadeError | UnmadeResult | None = None
    """The exception that a pool's task raised or returned, and that ended the thread which takes results."""

    filler: EndedFiller | None = None
    """The thread that should have filled the queue of its process."""
    spawner: LostSpawner | None = None
    """Of workers that were ended with the thread that had spawned them."""
    unread_end: UnreadAtExit | None = None
    """Of a program whose end waits for the thread of its queue."""
    exited: ExitedWorkers | None = None
    """Of a process that waits for what workers should have put that ended themselves."""
    taken: KilledHolder | None = None
    """Of a lock of multiprocessing that a killed process held."""
    held: HeldByParent | None = None
    """Of a process that holds what its workers wait for."""
    rpc: StarvedRpc | None = None
    """Of a worker of torch.distributed.rpc whose threads all wait for calls."""
    undone: UndoneItems | None = None
    """Of a queue between processes whose workers have all ended, or ask for more."""
    threads: ThreadReason | None = None
    """Why the threads do not end, or answer, that it waits for."""
    left: LeftChildren | None = None
    """Of a program that has come to its end: its children that are no daemons."""

    @property
    def unread(self) -> bool:
        """Whether it waited for the end of a child that waits until its queue, or its pipe, is read."""
        return self.wait.kind == "child" and bool(self.waiting) and self.waiting[-1][1].kind in UNREAD


def _forker(view: ProcessView, found: Stood) -> ProcessView | None:
    """Its parent, where that waits for it."""
    asks = found.waiting[-1][0] if found.waiting else None
    return asks if asks is not None and asks.process.snapshot.pid == view.process.snapshot.ppid else None


def unread_words(view: ProcessView, found: Stood) -> str:
    """Of a child whose queue or pipe nobody reads."""
    kind = found.waiting[-1][1].kind if found.unread else None
    what = UNREAD[kind] if kind is not None else None
    queue = unread_queue(view, found.wait) if kind == "unread-queue" else None
    what = f"all that it put into `{queue.name}` is read" if queue is not None else what
    if what is None:
        return ""
    takes = (
        found.unread_by.words(found.wait.at.file) if found.unread_by is not None and found.wait.at is not None else ""
    )
    return f", which cannot end before {what}{takes}{found.reader.words if found.reader is not None else ''}"


def _gone_words(view: ProcessView, found: Stood) -> str:
    gone, does = found.gone, "send" if found.wait.kind == "message" else "fill it"
    names = names_words(gone)
    codes = sorted({item.process.exit_code or 0 for item in gone})
    left = left_out_put(view, found.wait)
    why = f"; {left.words}" if left is not None else ""
    return f"; {names} had ended with status {' and '.join(map(str, codes))}, and no other child could {does}{why}"


def _not_put(view: ProcessView, wait: ProcessWait) -> str:
    """Of children that ended well; of tasks only where the file of the line has some, or is not known."""
    left = left_out_put(view, wait)
    if left is not None:
        return f"{left.advice}{_LOOKS}"
    tree = syntax_tree(view.process.snapshot, wait.at)
    calls = (
        {called_name(item) for item in nodes_of(tree) if isinstance(item, ast.Call)} if tree is not None else {*_TASKS}
    )
    return f"{_NOT_PUT}{_OF_POOL if calls & {*_TASKS} else ''}{_LOOKS}"


def why_words(view: ProcessView, found: Stood) -> str:
    """Why the wait did not end, as far as that is known."""
    if found.device is not None:
        return found.device.words
    if found.wait.kind == "executor" and found.thread is None:
        return executor_words(view)
    if found.wait.kind == "gil" and (held := gil_of(view)) is not None:
        return f"; {held.words}"
    if found.wait.kind == "answer":
        return answer_words(view, found.wait)
    if found.wait.kind == "network" and view.process.snapshot.worker is not None:
        end, since = asked_to_end(view.process), loading_since(view)
        return f"; this batch had lasted {time_words(end.mono_ns - since)}" if end is not None and since else ""
    if found.wait.kind == "forked-tasks":
        return started_words(view, found.wait.at)
    if found.started is not None:
        return f"; {found.started.words}"
    if found.wait.kind == "forked-native":
        return pool_words(view, found.together)
    if found.spawner is not None:
        return f"; {found.spawner.words}"
    if found.unread_end is not None:
        return found.unread_end.words
    if found.locks is not None:
        return f"; {found.locks.words}"
    if found.unsent is not None:
        return f"; {found.unsent.words}"
    if found.task is not None and found.thread is None:
        return f"; {found.task.words}"
    if found.holder is not None and found.thread is None:
        return f"; {found.holder.words}"
    if found.starved is not None and found.thread is None:
        return f"; {found.starved.words}"
    if found.threads is not None and found.thread is None:
        return f"; {found.threads.words}"
    if found.loading is not None and found.thread is None:
        end = asked_to_end(found.ended.process)
        return f"; {stuck_loading_words(view, found.loading, end.mono_ns if end is not None else None)}"
    if found.unasked is not None and found.unasked.words is not None and found.thread is None:
        return f"; {found.unasked.words}"
    if found.gone and found.thread is None:
        return _gone_words(view, found)
    if found.thread is not None and found.unmade is not None:
        return f"; {found.unmade.ended(found.thread)}"
    if found.thread is not None:
        return f"; {found.thread.words}"
    if found.undone is not None:
        return f"; {found.undone.words}"
    if found.handled is not None:
        return f"; it was handling {found.handled.words}"
    if found.receiver is not None:
        return f"; {found.receiver.words}"
    if found.without is not None:
        return f"; {found.without.words}"
    if found.both is not None:
        return f"; {found.both.words}"
    if found.filler is not None:
        return f"; {found.filler.words}"
    if found.alone:
        return f"; no other Python thread of the process was left to end that{only_words(view, found)}"
    if found.together > 1:
        return f"; {found.together} processes waited there"
    working = f"{work_words(found.working)}{_pattern_words(found)}"
    forked = fork_line(view, found.wait, _forker(view, found))
    return f"; {working}" if working else f"; {forked.words}" if forked is not None else ""


def _slow(found: Stood) -> SlowPattern | None:
    """Of the only child at work."""
    return pattern_at(found.working[0]) if len(found.working) == 1 else None


def _pattern_words(found: Stood) -> str:
    slow = _slow(found)
    return f" ({slow.call}, whose pattern repeats a repetition, `{slow.part}`)" if slow is not None else ""


def only_words(view: ProcessView, found: Stood) -> str:
    """The line that should have ended it, where the advice speaks of that."""
    thing = waited_object(view, found.wait) if not found.wait.kind.startswith("forked") else None
    words = thing.only_words if thing is not None and thing.advice is not None else None
    said = words is not None and thing is not None and (thing.advice or "") in _own_advice(view, found)
    return f"; {words}" if said else ""


def _own_advice(view: ProcessView, found: Stood) -> str:
    if found.exited is not None:
        return found.exited.advice
    if found.device is not None:
        return found.device.advice
    if found.forked is not None:
        return found.forked.advice
    if found.spawner is not None:
        return found.spawner.advice
    if found.unread_end is not None:
        return found.unread_end.advice
    if found.locks is not None:
        return found.locks.advice
    if found.started is not None:
        return found.started.advice
    if found.unsent is not None:
        return unsent_advice(view, found.wait, found.unsent)
    if found.task is not None and found.thread is None:
        return found.task.advice
    if found.holder is not None and found.thread is None:
        return found.holder.advice
    if found.starved is not None and found.thread is None:
        return found.starved.advice
    if found.threads is not None and found.thread is None:
        return found.threads.advice
    if found.loading is not None and found.thread is None:
        return stuck_loading_advice(view, found.loading) or _LOADING
    if found.unasked is not None and found.thread is None:
        return found.unasked.advice
    if found.receiver is not None and found.thread is None:
        return found.receiver.advice
    if found.without is not None and found.thread is None:
        return found.without.advice
    if found.untaken is not None and found.thread is None:
        handled = f"Look at {found.handled.words} first: it led to the join(). " if found.handled is not None else ""
        return handled + found.untaken.advice
    if found.unmade is not None:
        return found.unmade.advice
    if found.undone is not None and found.thread is None and found.undone.advice is not None:
        return found.undone.advice
    kind: WaitKind = found.waiting[-1][1].kind if found.unread else found.wait.kind
    if found.thread is None:
        handled = f"Look at {found.handled.words} first: the program waits on its way out. " if found.handled else ""
        if work_words(found.working) and not found.handled:
            slow = _slow(found)
            if slow is not None:
                return slow.advice
            polled = polled_advice(found.working)
            if polled is not None:
                return f"{polled} If it was only slow to come, raise the time limit."
            ahead = ahead_advice(view, found.wait, found.working)
            return f"{_WORKING} {ahead or wait_advice(view, found.wait)}"
        if found.reader is not None:
            return handled + found.reader.advice
        if found.unread:
            queue = unread_queue(view, found.wait) if kind == "unread-queue" else None
            later = read_later(view, found.wait)
            return handled + (queue.advice(later) if queue is not None else f"{later}{ADVICE[kind]}")
        if found.gone:
            return handled + (gone_advice(found.wait) or _not_put(view, found.wait))
        if found.filler is not None:
            return handled + found.filler.advice
        if found.wait.kind == "full-output" and found.waiting:
            return handled + full_output_advice(found.waiting[-1][0])
        forked = fork_line(view, found.wait, _forker(view, found))
        if forked is not None:
            return handled + forked.advice
        return handled + (found.both.advice if found.both is not None else wait_advice(view, found.wait))
    in_limit = found.thread.sure and (kind != "pool" or found.thread.loads)
    tells = telling_advice(view, found.wait, found.thread) if in_limit else None
    limit = tells or (_LIMIT.get(kind, ADVICE[kind]) if in_limit else ADVICE[kind])
    return f"{error_advice(view, found.thread) if in_limit else found.thread.advice} {limit}"


def _meanwhile(view: ProcessView, found: Stood) -> str:
    explained = (found.task, found.holder, found.thread, found.locks, found.unsent, found.starved, found.threads)
    known = any(item is not None for item in explained)
    return "" if known else meanwhile_words(view, found.wait)


def advice_of(view: ProcessView, found: Stood) -> str:
    """What to do, with what other threads did meanwhile, where no cause is known."""
    return _own_advice(view, found) + _meanwhile(view, found)
