"""standstill: a process that waited for something was ended from outside; the wait is the cause, the signal its end.

What: SIGTERM, SIGHUP or the like ended a process, or its whole job, and the stacks of that moment show a wait that
cannot end by itself: OpenMP in a forked child, a lock, a child or thread that does not end, a queue that stays empty, a
message at a pipe or a notice that does not come, an event loop without work, a CUDA device that does not finish, native
code that holds the GIL while it waits for threads that ask for it. Of a DataLoader worker that was inside a batch for
long, the loop that it went round in is named, with what may keep that from ending. A program that has come to its end
waits for its threads and children that are no daemons: what would end the loop of such a child is named. Of a wait for
a CUDA device, and of any call of its driver while a stream stays busy, the report has these streams, the launches that
are not known to be over (level `ops`), and kernels whose text has a loop that only waits. An exception that ended a
thread of the same process before is named: the thread may be the one that is waited for. So is what a child could not
send that it had put into a queue, and the exception that the program was handling: a `with` or `finally` may wait on
the way out.

Why it happens: fork() copies one thread only. The threads of an OpenMP pool that the parent had used do not exist in
the child, whose next parallel region waits for them for ever; nor do threads that held a lock at that moment, or those
that run the tasks of torch.jit.fork(), or those that another native library had started: of a worker that waits in such
a library, the line is named that had used it in the parent before the fork. Of Python's own threads - one that runs an
event loop, those of a ThreadPoolExecutor, one that answers by a queue - the line is named that starts them, and the one
that led there in the parent. join() of a pool of processes, shutdown() of an executor and the end of a program that has
one wait for the tasks of all workers, so one that stands is the cause. asyncio.run() and a `with ThreadPoolExecutor()`
end when the threads of the executor do, and cancel() of a task does not end the thread that runs it already. A process
that has put something into a multiprocessing queue ends when that is read, so join() before get() never returns; nor
does join() of one that waits for room in a full queue, from which by the source no other thread or process takes than
the one that joins it: both lines are named, those that take, and what the loop around put() asks no more. Two threads
that take two locks in different orders wait for each other: where the `with` statements of both show that, the locks
and lines are named. A `__del__` may take the lock that its own thread holds: the garbage collector calls it in the
middle of the locked section, where an object is in a cycle. A call of torch.distributed.rpc that waits for another one
keeps its thread of the pool; when all wait so, none is left to run what they wait for. A worker that died or stands
still leaves its parent waiting, and a parent that waits inside of `with lock:`, or of a write transaction of LMDB,
keeps workers out that take the same. What a queue's own thread cannot pickle is dropped; a Future keeps the exception
of its task; a worker that is killed in Queue.get() takes the lock of the queue along, and one that is ended inside of
`with lock:` that lock of multiprocessing. Of a lock that a forked child waits for, the thread of the parent is named
that was inside of its `with` at the end, or alone takes it by the source; so is a `with` of the forking thread around
the fork. What ends a wait (set(), put(), release()) may lie behind a branch that leaves. A thread that is joined may
wait itself for what the joining one does not do meanwhile: for a mark of its own where one was put for several, for
room in a queue that nobody takes from, or for a lock that the joining one holds; a coroutine that was handed to the
event loop does not begin while that loop's thread waits for it. A thread that keeps its program from ending is told
with the only line that sets the flag of its loop. A read from a socket without a time limit waits as long as the other
end is silent, and a child does not answer what is still in the buffer of its `stdin`. A thread that fills a queue of
its process may have ended in order without the mark (`None`) at which the taker stops: it puts that below a condition
only, or not at all; or by an error that its own `except` kept for whoever asks later. A program that has come to its
end waits until all that it put into a multiprocessing queue is in the pipe, although the reader has ended, by a count
or at a mark that came too early. A worker of torch.multiprocessing.spawn is interrupted, and ends with status 0, when
the thread that spawned it ends. recv() of a pipe gets no EOFError while its own process keeps the sender's end open,
and two ends that both call recv() wait for each other. An OSError ends a pool's thread that receives results, such as
of a tensor whose worker has ended; another error there ends it with a traceback, such as of a task's exception whose
class cannot be called with its `args` alone: what was raised, or which task returned it, and its constructor are named
then. A task of a multiprocessing pool is lost when its worker ends by sys.exit(), os._exit() or a signal, or cannot
read it; so is what a worker should have put into a queue that its parent asks. The line that sent the signal is named,
with its condition: a thread of the program that watches memory ends such a worker as well. A Barrier opens for as many
as it was made for; takers of a full queue that put into it themselves leave nobody to make room; a branch that leaves
between acquire() and release() keeps one place for good. A signal handler may take the lock that its own thread holds:
Python runs it between two steps of a locked section. A lock of a file is not reentrant when the file is opened anew.
The stack of an event loop has none of its coroutines: their source shows a Semaphore that is asked for inside of
itself, an item without task_done(), a worker that takes for ever and is awaited, and two that wait for each other.

What to do: OpenMP: start children by spawn or forkserver, or call torch.set_num_threads(1) before the first operator of
the parent. Locks: take them in one order, and none in `__del__`. RPC: do not wait inside of a call, or have more
threads. Native code: release the GIL around the wait. Queues: pass a timeout to get(), and look at who should have
filled it. Devices: see what ends the loop of the kernel; what is behind it on its stream does not begin before.

How it can be wrong: the stacks are of one moment. A forked child in OpenMP that made small tensors until then is told
to stand by its processor time, which a machine with very many processes at work keeps low, too. A program that waits
briefly and often may be met in a wait by chance; a service is idle by design. So all but OpenMP counts only where a
time limit ended the process. Threads of a native library are not recorded at such an end: one that starts them anew in
a child may only be slow. Of threads that ask for the GIL only their number is known, and whether native code holds it
is read from its source and from the names of its functions: without these it is *possible*. Where the child's threads
computed, or the library asks for its process, nothing is said of them. A device may only be slow: its wait counts only
where the process had recorded next to nothing for 5 s, and is *possible* until a stream was busy and 30 s have passed,
or a kernel waits by its text.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._text import capital
from pytracer.analyze.behind import Behind
from pytracer.analyze.deaths.order import is_interrupt
from pytracer.analyze.evidence.ends.dismissed_children import dismissed_evidence
from pytracer.analyze.evidence.ends.ended_with_parent import went_round
from pytracer.analyze.evidence.ends.sent_signals import deadly_signal
from pytracer.analyze.evidence.ends.signal_senders import from_time_limit
from pytracer.analyze.evidence.exceptions.unmade import UnmadeError
from pytracer.analyze.evidence.exceptions.unmade_results import UnmadeResult
from pytracer.analyze.evidence.waits.ended_fillers import EndedFiller
from pytracer.analyze.evidence.waits.ended_threads import (
    ended_thread_evidence,
    lost_results,
)
from pytracer.analyze.evidence.waits.executor_threads import unfinished_task
from pytracer.analyze.evidence.waits.exited_workers import ExitedWorkers, all_exited_workers, asks_another
from pytracer.analyze.evidence.waits.forked_pool import ForkedPool
from pytracer.analyze.evidence.waits.forked_pool_words import pool_of
from pytracer.analyze.evidence.waits.held_by_parent import HeldByParent, held_by_parent
from pytracer.analyze.evidence.waits.killed_holder import KilledHolder, killed_holder
from pytracer.analyze.evidence.waits.last_wait import last_wait
from pytracer.analyze.evidence.waits.left_children import LeftChildren
from pytracer.analyze.evidence.waits.left_locks import left_lock
from pytracer.analyze.evidence.waits.library_threads import LibraryThread
from pytracer.analyze.evidence.waits.lost_lock import LostLock, lost_lock
from pytracer.analyze.evidence.waits.lost_tasks import lost_tasks
from pytracer.analyze.evidence.waits.network_waits import unflushed
from pytracer.analyze.evidence.waits.parent_death import LostSpawner
from pytracer.analyze.evidence.waits.parent_threads import ParentThread
from pytracer.analyze.evidence.waits.standing_threads import ThreadReason
from pytracer.analyze.evidence.waits.starved_rpc import StarvedRpc, starved_rpc
from pytracer.analyze.evidence.waits.stood import Stood, advice_of, only_words, unread_words, why_words
from pytracer.analyze.evidence.waits.stood_end import end_words, ranks_meanwhile
from pytracer.analyze.evidence.waits.stood_loop import stood_loop
from pytracer.analyze.evidence.waits.undone_items import joins_items
from pytracer.analyze.evidence.waits.unread_at_exit import UnreadAtExit
from pytracer.analyze.evidence.waits.untaken_queues import UntakenQueue
from pytracer.analyze.evidence.waits.wait_chain import (
    at_words,
    waiters_there,
)
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait, WaitKind
from pytracer.analyze.evidence.waits.wait_words import wait_words
from pytracer.analyze.evidence.waits.waiting_alike import waits_evidence
from pytracer.analyze.evidence.waits.waits import end_of, gil_of, wait_of
from pytracer.analyze.evidence.waits.working_threads import may_work
from pytracer.analyze.kin import parent_of
from pytracer.analyze.naming import introduction, name_words, subject_words
from pytracer.analyze.platform.signals import SIGHUP, SIGINT, SIGQUIT, SIGTERM
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import Death, JobView, ProcessView
from pytracer.report.job import Confidence, PythonFrame

_OUTSIDE = (SIGTERM, SIGHUP, SIGQUIT, SIGINT)
_CONFIDENCE: dict[WaitKind, Confidence] = {
    "forked-openmp": "likely",
    "forked-lock": "likely",
    "forked-notice": "likely",
    "forked-tasks": "likely",
    "forked-native": "likely",
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
    "workers": "possible",
    "executor": "possible",
    "queue": "possible",
    "full-queue": "possible",
    "message": "possible",
    "full-pipe": "possible",
    "full-output": "likely",
    "pool": "possible",
    "notice": "possible",
    "barrier": "possible",
    "nodes": "likely",
    "undone": "possible",
    "event-loop": "possible",
    "network": "possible",
    "accept": "possible",
    "answer": "possible",
    "device": "possible",
    "driver": "possible",
    "gil": "possible",
}
_FOR_EVER: tuple[WaitKind, ...] = ("forked-openmp", "forked-lock", "forked-notice", "forked-tasks", "forked-native")
_IN_A_TASK = {False: "ended inside of a task of the pool", True: "could not read its task of the pool"}
_LONG = 200  # characters of a headline before its end
_HOW_LONG = "how long it had waited: the stacks are of the moment of the signal"
_WORKER = "the line of the worker: its recording has no stack of its end"
_THREADS = "which threads the library had in the parent and in the child"
_KERNEL = "whether a kernel never ends or was only slow: the device is not asked for that"


class Standstill:
    """Fires when all deaths that are not consequences were sent from outside, and one is at the end of a wait."""

    id = "standstill"
    needs = ("SIGNAL_SEEN",)

    def check(self, job: JobView) -> tuple[Judgement[Stood], ...] | NoFinding:
        """One judgement, which leads, or is beside the end of a pool's worker by a signal."""
        suspects = [death for death in job.deaths if death.primary is not False]
        lost = lost_lock(job)
        if lost is not None and all(
            item.view.index == lost.killed.index or _from_outside(item.view) for item in suspects
        ):
            return (_judge_lost(job, lost),)
        taken = killed_holder(job)
        if taken is not None and all(_from_outside(item.view) for item in suspects):
            return (_judge_taken(job, taken),)
        held = held_by_parent(job)
        if held is not None and all(_from_outside(item.view) for item in suspects):
            return (_judge_held(job, held),)
        rpc = starved_rpc(job)
        if rpc is not None and _ended_by_limit(job, suspects):
            return (_judge_rpc(job, rpc),)
        tasks = lost_tasks(job, [item.view for item in job.deaths if _from_outside(item.view)])
        left = {worker.index: worker for item in tasks for worker in item.left}
        exited = all_exited_workers(job, [item.view for item in job.deaths if _from_outside(item.view)])
        exits = {worker.index: worker for item in exited for worker in item.workers}
        asking = [*(item.parent for item in tasks), *(item.parent for item in exited)]
        suspects += [item for item in job.deaths if item.primary is False and any(item.view is v for v in asking)]
        suspects = [item for item in suspects if item.view.index not in (left | exits)]
        if not suspects or not all(_from_outside(death.view) for death in suspects):
            killed = next((item for item in tasks if item.worker.process.signal is not None), None)
            if killed is not None and from_time_limit(job, killed.parent):
                beside = Stood(killed.wait, (), killed.parent, without=killed)
                return (Judgement("hang", "likely", (killed.parent,), beside, accompanies=True),)
            return not_found("no process was ended from outside")
        ended_so = [*suspects, *_parents_ended_with(job, suspects), *_children_ended_with(job, suspects)]
        for death in sorted(ended_so, key=lambda item: _has_asking_parent(item, ended_so)):
            stood = last_wait(job, death.view)
            if stood is None or went_round(job, parent_of(job, stood[0])):
                continue
            view, found = stood
            explains = (
                *((item.view, "was ended while it stood still") for item in suspects),
                *((item, _IN_A_TASK[item.raised]) for item in left.values()),
                *((item, "ended itself, and left its parent waiting") for item in exits.values()),
            )
            confidence = _confidence(view, found, suspects)
            return (Judgement("hang", confidence, (view,), found, leads=True, explains=explains),)
        return not_found("no process that was ended from outside waited for a lock, a child, a thread or a queue")

    def describe(self, job: JobView, judgement: Judgement[Stood]) -> Description:
        """See Rule."""
        view, found = judgement.views[0], judgement.found
        if found.lost is not None:
            return _describe_lost(job, judgement, found.lost)
        if found.taken is not None:
            return _describe_taken(job, judgement, found.taken)
        if found.held is not None:
            return Description(
                f"{introduction(judgement.views)} {found.held.words}; {end_words(job, view, found, short=True)}.",
                found.held.evidence,
                found.held.advice,
                [],
                line=found.held.inside.frame,
            )
        if found.rpc is not None:
            return Description(
                f"{introduction(judgement.views)} {found.rpc.words}; {end_words(job, view, found, short=True)}.",
                found.rpc.evidence,
                found.rpc.advice,
                [_HOW_LONG],
                line=found.rpc.at,
            )
        if found.forked is not None:
            more = waiters_there(job, found.wait) - 1
            who = f"{subject_words(judgement.views)}{f' and {more} more' if more > 0 else ''}"
            return Description(
                f"{who} {found.forked.words}; {end_words(job, view, found)}.",
                [*waits_evidence(job, found.waiting), found.forked.evidence],
                advice_of(view, found),
                [_HOW_LONG],
                line=found.forked.taken,
            )
        if found.left is not None:
            return _describe_left(job, judgement, found.left)
        if found.exited is not None:
            return _describe_exited(job, judgement, found.exited)
        if found.untaken is not None and found.thread is None:
            return _describe_untaken(job, judgement, found.untaken)
        pool = pool_of(view) if found.wait.kind == "forked-native" else None
        left = left_lock(job, view) if found.wait.kind == "lock-file" else None
        why = f": {left.words}" if left is not None else why_words(view, found) or only_words(view, found)
        why += ranks_meanwhile(job, view) if found.device is not None else ""
        own = found.unread_end.wait_words if found.unread_end is not None else wait_words(view, found.wait)
        waited = f"{own}{at_words(found.wait)}{unread_words(view, found)}{why}"
        return Description(
            f"{introduction(judgement.views)} {waited}; {end_words(job, view, found, short=len(waited) > _LONG)}.",
            [
                *waits_evidence(job, found.waiting, (view, found.wait)),
                *ended_thread_evidence(view),
                found.locks.evidence if found.locks is not None else None,
                found.handled.evidence if found.handled is not None else None,
                found.unsent.evidence if found.unsent is not None else None,
                found.task.evidence if found.task is not None else None,
                found.without.evidence if found.without is not None else None,
                found.unmade.evidence if found.unmade is not None else None,
                *(found.spawner.evidence if found.spawner is not None else ()),
                *(found.device.evidence if found.device is not None else ()),
                *dismissed_evidence(job, view),
            ],
            left.advice if left is not None else advice_of(view, found),
            _missing(found),
            line=_line(pool, found),
            behind=_behind(
                pool
                or found.unmade
                or found.started
                or found.filler
                or found.spawner
                or found.unread_end
                or found.threads
            ),
        )


def _line(pool: ForkedPool | None, found: Stood) -> PythonFrame | None:
    """Where the child lost the threads; where a task raised what could not be made again."""
    if pool is not None:
        return pool.earlier.forked
    if found.started is not None or found.filler is not None or found.spawner is not None:
        return found.wait.at
    if found.unread_end is not None:
        return found.unread_end.at
    return found.unmade.at if found.unmade is not None else None


def _behind(
    found: ForkedPool
    | UnmadeError
    | UnmadeResult
    | ParentThread
    | LibraryThread
    | EndedFiller
    | LostSpawner
    | UnreadAtExit
    | ThreadReason
    | None,
) -> Behind | None:
    if isinstance(found, EndedFiller):
        return msgspec.structs.replace(Behind.of([], found), elsewhere=found.elsewhere)
    return Behind.of([], found) if found is not None else None


def _missing(found: Stood) -> list[str | None]:
    """What was not recorded."""
    if found.wait.kind == "forked-openmp" or found.without is not None:  # of that, since when at most
        return []
    if found.undone is not None and found.undone.since_ns is not None:
        return []
    loop = stood_loop(found.loading) if found.loading is not None else None
    if loop is not None and loop.never_ends:
        return []
    if found.loading is not None and not found.loading.python_stack:
        return [_WORKER]
    of_library = _THREADS if found.wait.kind == "forked-native" else None
    return [_KERNEL if found.device is not None else _HOW_LONG, of_library]


def _confidence(view: ProcessView, found: Stood, suspects: Sequence[Death]) -> Confidence:
    """More than that of its kind of wait, where it is known why the wait cannot end."""
    if found.device is not None:
        return found.device.confidence
    if found.left is not None:
        return "likely" if found.left.sure else "possible"
    is_sure = found.unread or bool(found.gone) or (found.thread is not None and found.thread.sure)
    is_sure |= any(
        item is not None
        for item in (
            found.receiver,
            found.unsent,
            found.starved,
            found.task,
            found.untaken,
            found.filler,
            found.spawner,
            found.exited,
            found.undone,
        )
    )
    is_sure |= found.both is not None and found.both.unanswered is not None
    is_sure |= found.threads is not None and found.threads.sure
    is_sure |= found.unread_end is not None and bool(found.unread_end.gone)
    is_sure |= found.without is not None and (found.without.first or not (found.working or found.without.working))
    is_sure |= found.unasked is not None and found.unasked.refused is not None
    loop = stood_loop(found.loading) if found.loading is not None else None
    is_sure |= loop is not None and loop.confidence == "likely"
    task = unfinished_task(end_of(view)) if found.wait.kind == "executor" else None
    is_sure |= task is not None and task.blocked
    is_sure |= found.wait.kind == "answer" and not found.working and unflushed(view, found.wait) is not None
    is_sure |= found.wait.kind == "gil" and (held := gil_of(view)) is not None and held.held
    is_sure |= found.wait.kind == "lock-file" and _nobody_has_it(suspects)
    ends_itself = found.threads is not None and not found.threads.sure  # as a Timer does, that waits once
    ends_itself |= found.wait.kind == "thread-at-exit" and may_work(view)
    return "likely" if is_sure else "possible" if ends_itself else _CONFIDENCE[found.wait.kind]


def _judge_lost(job: JobView, lost: LostLock) -> Judgement[Stood]:
    explains = {item.view.index: (item.view, "was ended while it stood still") for item in job.deaths}
    explains[lost.killed.index] = (lost.killed, "was killed before, perhaps with the lock of a queue")
    found = Stood(lost.wait, (), lost.asking, lost=lost)
    return Judgement("hang", "likely", (lost.asking,), found, leads=True, explains=tuple(explains.values()))


def _describe_lost(job: JobView, judgement: Judgement[Stood], lost: LostLock) -> Description:
    return Description(
        f"{introduction(judgement.views)} {wait_words(lost.asking, lost.wait)}{at_words(lost.wait)}; {lost.words}; "
        f"{lost.killed_words(job)}.",
        lost.evidence,
        lost.advice,
        ["whether the killed process held the lock: it left no stack"],
    )


def _judge_taken(job: JobView, taken: KilledHolder) -> Judgement[Stood]:
    explains = {item.view.index: (item.view, "was ended while it stood still") for item in job.deaths}
    explains[taken.killed.index] = (taken.killed, "was ended while it held the lock")
    found = Stood(ProcessWait("lock", taken.at), (), taken.waiting[0], taken=taken)
    return Judgement("hang", "likely", taken.waiting[:1], found, leads=True, explains=tuple(explains.values()))


def _judge_held(job: JobView, held: HeldByParent) -> Judgement[Stood]:
    return _judge_all(job, Stood(held.wait, (), held.parent, held=held), "likely")


def _judge_rpc(job: JobView, rpc: StarvedRpc) -> Judgement[Stood]:
    return _judge_all(job, Stood(ProcessWait("notice", rpc.at), (), rpc.view, rpc=rpc), rpc.confidence)


def _judge_all(job: JobView, found: Stood, confidence: Confidence) -> Judgement[Stood]:
    """Of a standstill of the whole job."""
    explains = tuple((item.view, "was ended while it stood still") for item in job.deaths)
    return Judgement("hang", confidence, (found.ended,), found, leads=True, explains=explains)


def _ended_by_limit(job: JobView, suspects: Sequence[Death]) -> bool:
    """Whether all were ended from outside, one at least at a time limit."""
    return all(_from_outside(item.view) for item in suspects) and any(
        from_time_limit(job, item.view) for item in suspects
    )


def _describe_taken(job: JobView, judgement: Judgement[Stood], taken: KilledHolder) -> Description:
    """The end of the holder first: the waits follow from that."""
    asking = taken.asking
    asks = f", and {name_words([asking[0]])} {wait_words(*asking)}{at_words(asking[1])}" if asking is not None else ""
    return Description(
        f"{capital(taken.words(job))}{asks}, until a time limit ended them.",
        taken.evidence,
        taken.advice,
        [],
        line=taken.inside.frame,
    )


def _describe_exited(job: JobView, judgement: Judgement[Stood], exited: ExitedWorkers) -> Description:
    """The workers' end first: the wait follows from that."""
    view, found = judgement.views[0], judgement.found
    return Description(
        f"{capital(exited.words)}; {exited.why}; {end_words(job, view, found, short=True)}.",
        [exited.evidence, *waits_evidence(job, found.waiting, (view, found.wait))],
        advice_of(view, found),
        [],
        line=exited.at,
    )


def _describe_left(job: JobView, judgement: Judgement[Stood], left: LeftChildren) -> Description:
    """The end of the program first; no line of it runs any more."""
    return Description(
        f"{introduction(judgement.views)} {left.words}; "
        f"{end_words(job, judgement.views[0], judgement.found, short=len(left.words) > _LONG)}.",
        [],
        left.advice,
        [_HOW_LONG],
        line=left.at,
        behind=Behind.of([], left),
    )


def _describe_untaken(job: JobView, judgement: Judgement[Stood], untaken: UntakenQueue) -> Description:
    """Both ends of the ring; an exception that led to the join() comes before the end."""
    view, found = judgement.views[0], judgement.found
    handled = f"; the parent was handling {found.handled.words}" if found.handled is not None else ""
    return Description(
        f"{introduction(judgement.views)} {untaken.words}{handled}; {end_words(job, view, found, short=True)}.",
        [
            *waits_evidence(job, found.waiting, (view, found.wait)),
            found.handled.evidence if found.handled is not None else None,
        ],
        advice_of(view, found),
        _missing(found),
        line=found.wait.at,
        behind=Behind.of([], untaken),
    )


def _has_asking_parent(death: Death, others: Sequence[Death]) -> bool:
    """Whether it waits for a queue, as its parent does, or that one takes no results any more: its wait comes first."""
    parent = death.view.process.snapshot.ppid
    asks = asks_another(death.view)
    above = [item.view for item in others if item.view.process.snapshot.pid == parent]
    return any((asks and (asks_another(item) or joins_items(item))) or _lost_results(item) for item in above)


def _lost_results(view: ProcessView) -> bool:
    wait = wait_of(view)
    return wait is not None and lost_results(view, wait)


def _nobody_has_it(suspects: Sequence[Death]) -> bool:
    """Whether all that ran Python waited for a lock file: none of them is the one that holds it."""
    waits = [wait_of(death.view) for death in suspects if death.view.python_stack]
    return bool(waits) and all(wait is not None and wait.kind == "lock-file" for wait in waits)


def _from_outside(view: ProcessView) -> bool:
    """By a signal that asks a process to end; the program's own are no interruption from outside."""
    sent = deadly_signal(view)
    own = sent is not None and sent.sender_pid == view.process.snapshot.pid
    return view.process.signal in _OUTSIDE and not view.raised and not own and not is_interrupt(view)


def _parents_ended_with(job: JobView, suspects: Sequence[Death]) -> list[Death]:
    """Parents that the same sender's signal ended, and that a child was faster to obey: `timeout` sends it to all."""
    sent = {(death.view.process.snapshot.ppid, _sender(death.view)) for death in suspects}
    return [item for item in _followed(job) if (item.view.process.snapshot.pid, _sender(item.view)) in sent]


def _children_ended_with(job: JobView, suspects: Sequence[Death]) -> list[Death]:
    """Children that the same sender's signal ended, in a wait that cannot end: a parent may wait in its own way."""
    sent = {(death.view.process.snapshot.pid, _sender(death.view)) for death in suspects}
    ended = [item for item in _followed(job) if (item.view.process.snapshot.ppid, _sender(item.view)) in sent]
    return [item for item in ended if (wait := wait_of(item.view)) is not None and wait.kind in _FOR_EVER]


def _followed(job: JobView) -> list[Death]:
    """Those that follow from another one, and that a known process ended from outside."""
    ended = (item for item in job.deaths if item.primary is False and _from_outside(item.view))
    return [item for item in ended if _sender(item.view)]


def _sender(view: ProcessView) -> int:
    sent = deadly_signal(view)
    return sent.sender_pid if sent is not None else 0
