"""standstill: a process that waited for something was ended from outside; the wait is the cause, the signal its end.

What: SIGTERM, SIGHUP or the like ended a process, or its whole job, and the stacks of that moment show a wait that
cannot end by itself: OpenMP in a forked child, a lock, a child or thread that does not end, a queue that stays empty, a
notice that does not come, an event loop without work. A program that has come to its end waits for its threads that are
no daemons. An exception that ended a thread of the same process before is named: the thread may be the one that is
waited for. So is what a child could not send that it had put into a queue, and the exception that the program was
handling: a `with` or `finally` may wait on the way out.

Why it happens: fork() copies one thread only. The threads of an OpenMP pool that the parent had used do not exist in
the child, whose next parallel region waits for them for ever; nor do threads that held a lock at that moment. A process
that has put something into a multiprocessing queue ends when that is read, so join() before get() never returns. Two
threads that take two locks in different orders wait for each other: where the `with` statements of both show that, the
locks and lines are named. A worker that died or stands still leaves its parent waiting. What a queue's own thread
cannot pickle is dropped; a Future keeps the exception of its task; a worker that is killed in Queue.get() takes the
lock of the queue along. What ends a wait (set(), put(), release()) may lie behind a branch that leaves.

What to do: OpenMP: start children by spawn or forkserver, or call torch.set_num_threads(1) before the first operator
of the parent. Locks: take them in one order. Queues: pass a timeout to get(), and look at who should have filled it.

How it can be wrong: the stacks are of one moment. A program that waits briefly and often may be met in a wait by
chance; a service is idle by design. So all but OpenMP counts only where a time limit ended the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytracer._text import list_words
from pytracer.analyze.deaths.ending import asked_to_end
from pytracer.analyze.deaths.order import is_interrupt
from pytracer.analyze.evidence.ends.sent_signals import deadly_signal
from pytracer.analyze.evidence.ends.signal_senders import from_time_limit, sender_words
from pytracer.analyze.evidence.exceptions.handled import Handled, handled_at_end
from pytracer.analyze.evidence.exceptions.loaders import loading_words, loading_workers, waits_for_loader
from pytracer.analyze.evidence.waits.ended_threads import (
    EndedThread,
    ended_thread_evidence,
    no_other_could,
    thread_behind,
)
from pytracer.analyze.evidence.waits.failed_task import FailedTask, failed_task
from pytracer.analyze.evidence.waits.lock_order import CrossedLocks, LockHolder, crossed_locks, lock_holder
from pytracer.analyze.evidence.waits.lost_lock import LostLock, lost_lock
from pytracer.analyze.evidence.waits.starved_pool import StarvedPool, starved_pool
from pytracer.analyze.evidence.waits.unsent import Unsent, unsent_advice, unsent_of
from pytracer.analyze.evidence.waits.wait_advice import ADVICE, read_later, wait_advice
from pytracer.analyze.evidence.waits.wait_chain import (
    at_words,
    children_at_work,
    children_of,
    meanwhile_words,
    wait_chain,
    work_words,
)
from pytracer.analyze.evidence.waits.wait_words import wait_words
from pytracer.analyze.evidence.waits.waited_object import waited_object
from pytracer.analyze.evidence.waits.waits import (
    ProcessWait,
    WaitKind,
    is_between_processes,
    lacks_receiver,
    wait_of,
)
from pytracer.analyze.naming import introduction, name_words, place_words
from pytracer.analyze.platform.signals import SIGHUP, SIGINT, SIGQUIT, SIGTERM, signal_name
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import Death, JobView, ProcessView
from pytracer.report.job import Confidence, Evidence

_OUTSIDE = (SIGTERM, SIGHUP, SIGQUIT, SIGINT)
_CONFIDENCE: dict[WaitKind, Confidence] = {
    "forked-openmp": "likely",
    "forked-lock": "likely",
    "forked-notice": "likely",
    "lock": "likely",
    "lock-file": "possible",
    "flock": "possible",
    "debugger": "likely",
    "input": "possible",
    "open": "possible",
    "child": "possible",
    "unread-queue": "possible",
    "thread-at-exit": "likely",
    "thread": "possible",
    "queue": "possible",
    "full-queue": "possible",
    "pool": "possible",
    "notice": "possible",
    "barrier": "possible",
    "nodes": "likely",
    "undone": "possible",
    "event-loop": "possible",
}
_NOT_PUT = (
    "They ended without putting what is waited for. What cannot be pickled (a lambda, a local function, an open file) "
    "fails in the queue's own thread, whose traceback goes to stderr, or nowhere if the process is just ending: put "
    "plain data. Or they returned before put(). get(timeout=...), and a look at is_alive(), end such a wait."
)
_WORKING = "If that child is only slow, raise the time limit; else see what it does there without end."
_LOADING = (
    "Time that batch in one process: `dataset[i]` for its samples, with num_workers=0. If it is only slow, raise the "
    "time limit, load less per sample, or use more workers; if it does not come back, look at what it waits for there. "
    "The DataLoader's own `timeout` raises an error that names the worker."
)
_OF_CHILDREN: tuple[WaitKind, ...] = ("child", "queue", "pool")
_IN_MEMORY: tuple[WaitKind, ...] = ("queue", "notice", "undone")
_BEFORE_NS = 1_000_000_000
_NAMED = 3
_LIMIT: dict[WaitKind, str] = {
    "queue": "get(timeout=...) raises instead of waiting for ever.",
    "full-queue": "put(timeout=...) raises instead of waiting for ever.",
    "notice": "wait(timeout=...) or result(timeout=...) does not wait for ever.",
}


@dataclass(frozen=True)
class _Standstill:
    """The wait at the end of the chain, who waits for that process, and the process that the signal ended first.

    `thread`: of the process, ended by an exception before, that may be waited for.
    """

    wait: ProcessWait
    waiting: tuple[tuple[ProcessView, ProcessWait], ...]
    ended: ProcessView
    thread: EndedThread | None = None
    handled: Handled | None = None
    receiver_ended: bool = False
    """Whether a pool's thread that receives results is missing."""
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
    """How many processes waited at its line of a Barrier."""
    alone: bool = False
    """Whether no other thread could have ended the wait in its own memory."""

    @property
    def unread(self) -> bool:
        """Whether it waited for the end of a child that waits until its queue is read."""
        return self.wait.kind == "child" and bool(self.waiting) and self.waiting[-1][1].kind == "unread-queue"


class Standstill:
    """Fires when all deaths that are not consequences were sent from outside, and one is at the end of a wait."""

    id = "standstill"
    needs = ("SIGNAL_SEEN",)

    def check(self, job: JobView) -> tuple[Judgement[_Standstill], ...] | NoFinding:
        """One judgement, which leads."""
        suspects = [death for death in job.deaths if death.primary is not False]
        lost = lost_lock(job)
        if lost is not None and all(
            item.view.index == lost.killed.index or _from_outside(item.view) for item in suspects
        ):
            return (_judge_lost(job, lost),)
        if not suspects or not all(_from_outside(death.view) for death in suspects):
            return not_found("no process was ended from outside")
        ended_so = [*suspects, *_parents_ended_with(job, suspects)]
        for death in sorted(ended_so, key=lambda item: _has_asking_parent(item, ended_so)):
            chain = list(wait_chain(job, death.view))
            if not chain:
                continue
            if _reader_is_to_blame(chain):
                chain = [*chain[:-2], chain[-1], chain[-2]]
            (view, wait), ended = chain[-1], death.view
            if wait.kind != "forked-openmp" and not from_time_limit(job, ended):
                continue
            if wait.kind == "open":
                continue  # it may have been opening one file of many
            receiver_ended = wait.kind == "pool" and lacks_receiver(view)
            thread = thread_behind(view, wait)
            gone = _children_gone(job, view) if wait.kind == "queue" and is_between_processes(view) else ()
            locks = crossed_locks(view) if wait.kind == "lock" else None
            handled = handled_at_end(view)
            loading = next(iter(_loading(job, view)), None) if wait.kind == "queue" else None
            found = _Standstill(
                wait,
                tuple(chain[:-1]),
                ended,
                thread,
                handled,
                receiver_ended,
                gone,
                locks,
                loading,
                unsent_of(job, view) if wait.kind == "queue" and is_between_processes(view) else None,
                starved_pool(view) if wait.kind == "notice" else None,
                tuple(children_at_work(job, view)) if wait.kind in _OF_CHILDREN else (),
                together=_together(job, wait) if wait.kind == "barrier" else 0,
                task=failed_task(view, wait) if wait.kind in _IN_MEMORY and not is_between_processes(view) else None,
                holder=lock_holder(view) if wait.kind == "lock" and locks is None else None,
                alone=wait.kind in _IN_MEMORY and no_other_could(view),
            )
            explains = tuple((item.view, "was ended while it stood still") for item in suspects)
            is_sure = found.unread or receiver_ended or bool(gone) or (found.thread is not None and found.thread.sure)
            is_sure = is_sure or any(item is not None for item in (found.unsent, found.starved, found.task))
            is_sure = is_sure or (wait.kind == "lock-file" and _nobody_has_it(suspects))
            sure: Confidence = "likely" if is_sure else _CONFIDENCE[wait.kind]
            return (Judgement("hang", sure, (view,), found, leads=True, explains=explains),)
        return not_found("no process that was ended from outside waited for a lock, a child, a thread or a queue")

    def describe(self, job: JobView, judgement: Judgement[_Standstill]) -> Description:
        """See Rule."""
        view, found = judgement.views[0], judgement.found
        if found.lost is not None:
            return _describe_lost(job, judgement, found.lost)
        sent = deadly_signal(found.ended)
        name = signal_name(sent.signal) if sent is not None else "a signal"
        by = sender_words(job, found.ended)
        limit = " at a time limit" if from_time_limit(job, found.ended) else ""
        end = f"{name}{f', sent by {by},' if by else ''} ended {_ended_words(view, found.ended)}{limit}"
        why = _died(found) or _only_words(view, found)
        waited = f"{wait_words(view, found.wait)}{at_words(found.wait)}{_unread(found)}{why}"
        return Description(
            f"{introduction(judgement.views)} {waited}; {end}.",
            [
                *(_evidence(item, wait) for item, wait in found.waiting),
                *ended_thread_evidence(view),
                found.locks.evidence if found.locks is not None else None,
                found.handled.evidence if found.handled is not None else None,
                found.unsent.evidence if found.unsent is not None else None,
                found.task.evidence if found.task is not None else None,
            ],
            _advice(view, found) + _meanwhile(view, found),
            []
            if found.wait.kind == "forked-openmp"
            else ["how long it had waited: the stacks are of the moment of the signal"],
        )


def _reader_is_to_blame(chain: Sequence[tuple[ProcessView, ProcessWait]]) -> bool:
    """Whether its child waits until it reads, or for its next task: it waits for something else meanwhile."""
    if len(chain) < 2:
        return False
    (reader, wait), (child, last) = chain[-2:]
    idle = last.kind == wait.kind == "queue" and is_between_processes(reader) and is_between_processes(child)
    return last.kind == "unread-queue" or idle


def _judge_lost(job: JobView, lost: LostLock) -> Judgement[_Standstill]:
    explains = {item.view.index: (item.view, "was ended while it stood still") for item in job.deaths}
    explains[lost.killed.index] = (lost.killed, "was killed before, perhaps with the lock of a queue")
    found = _Standstill(lost.wait, (), lost.asking, lost=lost)
    return Judgement("hang", "likely", (lost.asking,), found, leads=True, explains=tuple(explains.values()))


def _describe_lost(job: JobView, judgement: Judgement[_Standstill], lost: LostLock) -> Description:
    return Description(
        f"{introduction(judgement.views)} {wait_words(lost.asking, lost.wait)}{at_words(lost.wait)}; {lost.words}; "
        f"{lost.killed_words(job)}.",
        lost.evidence,
        lost.advice,
        ["whether the killed process held the lock: it left no stack"],
    )


def _together(job: JobView, wait: ProcessWait) -> int:
    others = [wait_of(item) for item in job.views]
    return sum(item is not None and item.kind == wait.kind and item.at == wait.at for item in others)


def _has_asking_parent(death: Death, others: Sequence[Death]) -> bool:
    """Whether it waits for a queue, as its parent does: that one's wait comes first."""
    if not _asks_queue(death.view):
        return False
    parent = death.view.process.snapshot.ppid
    return any(item.view.process.snapshot.pid == parent and _asks_queue(item.view) for item in others)


def _asks_queue(view: ProcessView) -> bool:
    wait = wait_of(view)
    return wait is not None and wait.kind == "queue" and is_between_processes(view)


def _nobody_has_it(suspects: Sequence[Death]) -> bool:
    """Whether all that ran Python waited for a lock file: none of them is the one that holds it."""
    waits = [wait_of(death.view) for death in suspects if death.view.python_stack]
    return bool(waits) and all(wait is not None and wait.kind == "lock-file" for wait in waits)


def _unread(found: _Standstill) -> str:
    return ", which cannot end before its queue is read" if found.unread else ""


def _children_gone(job: JobView, view: ProcessView) -> tuple[ProcessView, ...]:
    """Its children, if all had ended a while before it, and none by a signal: that is a death of its own."""
    children = children_of(job, view)
    ended = view.ended_ns
    if ended is None or any(item.ended_ns is None or item.ended_ns > ended - _BEFORE_NS for item in children):
        return ()
    return tuple(children) if all(item.process.status_kind == "exited" for item in children) else ()


def _gone_words(gone: Sequence[ProcessView]) -> str:
    names = list_words([name_words([item]) for item in gone[:_NAMED]] + ["others"] * (len(gone) > _NAMED))
    codes = sorted({item.process.exit_code or 0 for item in gone})
    return f"; {names} had ended with status {' and '.join(map(str, codes))}, and no other child could fill it"


def _loading(job: JobView, view: ProcessView) -> list[ProcessView]:
    """Its DataLoader workers that were inside a batch when the signal came."""
    end = asked_to_end(view.process)
    return loading_workers(job, view, end.mono_ns) if end is not None and waits_for_loader(view) else []


def _loading_words(found: _Standstill, worker: ProcessView) -> str:
    """`; DataLoader worker 0 (pid 8) had been loading samples 0-7 for 9.1 s at data.py:5 in Video.__getitem__`."""
    end = asked_to_end(found.ended.process)
    at = f" at {place_words(worker.python_frame)}" if worker.python_frame is not None else ""
    return f"; {loading_words(worker, end.mono_ns if end is not None else None)}{at}"


def _died(found: _Standstill) -> str:
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
    if found.loading is not None and found.thread is None:
        return _loading_words(found, found.loading)
    if found.gone and found.thread is None:
        return _gone_words(found.gone)
    if found.thread is not None:
        return f"; {found.thread.words}"
    if found.handled is not None:
        return f"; it was handling {found.handled.words}"
    if found.receiver_ended:
        return "; the pool's thread that receives results had ended"
    if found.alone:
        return "; no other Python thread of the process was left to end that"
    if found.together > 1:
        return f"; {found.together} processes waited there"
    working = work_words(found.working)
    return f"; {working}" if working else ""


def _only_words(view: ProcessView, found: _Standstill) -> str:
    """The line that should have ended it, where the advice speaks of that."""
    thing = waited_object(view, found.wait) if not found.wait.kind.startswith("forked") else None
    words = thing.only_words if thing is not None and thing.advice is not None else None
    said = words is not None and thing is not None and (thing.advice or "") in _advice(view, found)
    return f"; {words}" if said else ""


def _advice(view: ProcessView, found: _Standstill) -> str:
    if found.locks is not None:
        return found.locks.advice
    if found.unsent is not None:
        return unsent_advice(view, found.wait, found.unsent)
    if found.task is not None and found.thread is None:
        return found.task.advice
    if found.holder is not None and found.thread is None:
        return found.holder.advice
    if found.starved is not None and found.thread is None:
        return found.starved.advice
    if found.loading is not None and found.thread is None:
        return _LOADING
    kind: WaitKind = "unread-queue" if found.unread else found.wait.kind
    if found.thread is None:
        handled = f"Look at {found.handled.words} first: the program waits on its way out. " if found.handled else ""
        if work_words(found.working) and not found.handled:
            return f"{_WORKING} {wait_advice(view, found.wait)}"
        if found.unread:
            return f"{handled}{read_later(view, found.wait)}{ADVICE[kind]}"
        return handled + (_NOT_PUT if found.gone else wait_advice(view, found.wait))
    return f"{found.thread.advice} {_LIMIT.get(kind, ADVICE[kind]) if found.thread.sure else ADVICE[kind]}"


def _meanwhile(view: ProcessView, found: _Standstill) -> str:
    explained = (found.task, found.holder, found.thread, found.locks, found.unsent, found.starved)
    known = any(item is not None for item in explained)
    return "" if known else meanwhile_words(view, found.wait)


def _ended_words(view: ProcessView, ended: ProcessView) -> str:
    return "it" if ended.index == view.index else name_words([ended])


def _evidence(view: ProcessView, wait: ProcessWait) -> Evidence:
    return Evidence(
        "rank-state",
        f"{name_words([view])} {wait_words(view, wait)}{at_words(wait)}",
        pid=view.process.snapshot.pid,
        rank=view.process.rank,
        state=wait.kind,
        python=wait.at,
    )


def _from_outside(view: ProcessView) -> bool:
    """By a signal that asks a process to end; the program's own are no interruption from outside."""
    sent = deadly_signal(view)
    own = sent is not None and sent.sender_pid == view.process.snapshot.pid
    return view.process.signal in _OUTSIDE and not view.raised and not own and not is_interrupt(view)


def _parents_ended_with(job: JobView, suspects: Sequence[Death]) -> list[Death]:
    """Parents that the same sender's signal ended, and that a child was faster to obey: `timeout` sends it to all."""
    sent = {(death.view.process.snapshot.ppid, _sender(death.view)) for death in suspects}
    return [
        death
        for death in job.deaths
        if death.primary is False and _from_outside(death.view)
        if (death.view.process.snapshot.pid, _sender(death.view)) in sent and _sender(death.view)
    ]


def _sender(view: ProcessView) -> int:
    sent = deadly_signal(view)
    return sent.sender_pid if sent is not None else 0
