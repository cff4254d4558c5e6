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

from pytracer.analyze.deaths.order import is_interrupt
from pytracer.analyze.evidence.ends.ended_with_parent import went_round
from pytracer.analyze.evidence.ends.sent_signals import deadly_signal
from pytracer.analyze.evidence.ends.signal_senders import from_time_limit
from pytracer.analyze.evidence.waits.ended_threads import (
    lost_results,
)
from pytracer.analyze.evidence.waits.exited_workers import all_exited_workers, asks_another
from pytracer.analyze.evidence.waits.held_by_parent import HeldByParent, held_by_parent
from pytracer.analyze.evidence.waits.killed_holder import KilledHolder, killed_holder
from pytracer.analyze.evidence.waits.last_wait import last_wait
from pytracer.analyze.evidence.waits.lost_lock import LostLock, lost_lock
from pytracer.analyze.evidence.waits.lost_tasks import lost_tasks
from pytracer.analyze.evidence.waits.starved_rpc import StarvedRpc, starved_rpc
from pytracer.analyze.evidence.waits.stood import Stood
from pytracer.analyze.evidence.waits.undone_items import joins_items
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait, WaitKind
from pytracer.analyze.evidence.waits.waits import wait_of
from pytracer.analyze.kin import parent_of
from pytracer.analyze.platform.signals import SIGHUP, SIGINT, SIGQUIT, SIGTERM
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.rules.standstill_confidence import confidence_of
from pytracer.analyze.rules.standstill_words import description_of
from pytracer.analyze.view import Death, JobView, ProcessView
from pytracer.report.job import Confidence

_OUTSIDE = (SIGTERM, SIGHUP, SIGQUIT, SIGINT)
_FOR_EVER: tuple[WaitKind, ...] = ("forked-openmp", "forked-lock", "forked-notice", "forked-tasks", "forked-native")
_IN_A_TASK = {False: "ended inside of a task of the pool", True: "could not read its task of the pool"}


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
            confidence = confidence_of(view, found, suspects)
            return (Judgement("hang", confidence, (view,), found, leads=True, explains=explains),)
        return not_found("no process that was ended from outside waited for a lock, a child, a thread or a queue")

    def describe(self, job: JobView, judgement: Judgement[Stood]) -> Description:
        """See Rule."""
        return description_of(job, judgement)


def _judge_lost(job: JobView, lost: LostLock) -> Judgement[Stood]:
    explains = {item.view.index: (item.view, "was ended while it stood still") for item in job.deaths}
    explains[lost.killed.index] = (lost.killed, "was killed before, perhaps with the lock of a queue")
    found = Stood(lost.wait, (), lost.asking, lost=lost)
    return Judgement("hang", "likely", (lost.asking,), found, leads=True, explains=tuple(explains.values()))


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


def _has_asking_parent(death: Death, others: Sequence[Death]) -> bool:
    """Whether it waits for a queue, as its parent does, or that one takes no results any more: its wait comes first."""
    parent = death.view.process.snapshot.ppid
    asks = asks_another(death.view)
    above = [item.view for item in others if item.view.process.snapshot.pid == parent]
    return any((asks and (asks_another(item) or joins_items(item))) or _lost_results(item) for item in above)


def _lost_results(view: ProcessView) -> bool:
    wait = wait_of(view)
    return wait is not None and lost_results(view, wait)


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
