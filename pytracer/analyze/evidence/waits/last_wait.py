"""How a process stood still that a signal ended: the wait at the end of its chain, with all that is known of it."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer.analyze.deaths.ending import asked_to_end
from pytracer.analyze.evidence.ends.signal_senders import from_time_limit
from pytracer.analyze.evidence.exceptions.handled import handled_at_end
from pytracer.analyze.evidence.exceptions.loaders import loading_workers, waits_for_loader
from pytracer.analyze.evidence.exceptions.unmade_results import unmade_object
from pytracer.analyze.evidence.waits.awaited import awaited_reason
from pytracer.analyze.evidence.waits.crossed_processes import crossed_processes
from pytracer.analyze.evidence.waits.ended_fillers import ended_filler
from pytracer.analyze.evidence.waits.ended_readers import ended_reader
from pytracer.analyze.evidence.waits.ended_threads import lost_results, no_other_could, thread_behind
from pytracer.analyze.evidence.waits.endless_work import endless_work
from pytracer.analyze.evidence.waits.exited_workers import exited_workers
from pytracer.analyze.evidence.waits.failed_task import failed_task
from pytracer.analyze.evidence.waits.forked_locks import forked_lock
from pytracer.analyze.evidence.waits.joined_threads import process_reason, thread_reason
from pytracer.analyze.evidence.waits.left_children import left_children
from pytracer.analyze.evidence.waits.library_threads import LibraryThread, library_thread
from pytracer.analyze.evidence.waits.lock_order import crossed_locks, lock_holder
from pytracer.analyze.evidence.waits.lost_tasks import lost_task
from pytracer.analyze.evidence.waits.messages import both_wait, serves_a_working_parent
from pytracer.analyze.evidence.waits.parent_death import lost_spawner
from pytracer.analyze.evidence.waits.parent_threads import ParentThread, parent_thread
from pytracer.analyze.evidence.waits.pool_results import ended_receiver
from pytracer.analyze.evidence.waits.quiet import pause_of
from pytracer.analyze.evidence.waits.standing_threads import ThreadReason
from pytracer.analyze.evidence.waits.starved_pool import starved_pool
from pytracer.analyze.evidence.waits.stood import UNREAD, Stood
from pytracer.analyze.evidence.waits.taken_twice import taken_twice
from pytracer.analyze.evidence.waits.unasked_tasks import UnaskedTasks, unasked_tasks
from pytracer.analyze.evidence.waits.undone_items import undone_items
from pytracer.analyze.evidence.waits.unread_at_exit import unread_at_exit
from pytracer.analyze.evidence.waits.unsent import unsent_of
from pytracer.analyze.evidence.waits.untaken_queues import unread_by_parent, untaken_queue
from pytracer.analyze.evidence.waits.wait_chain import (
    children_at_work,
    wait_chain,
    wait_for_device,
    waiters_there,
)
from pytracer.analyze.evidence.waits.wait_kinds import OF_DEVICE, ProcessWait, WaitKind
from pytracer.analyze.evidence.waits.waits import end_of, is_between_processes, main_stack, program_stack, wait_of
from pytracer.analyze.kin import children_of, parent_of
from pytracer.analyze.view import JobView, ProcessView

_OF_CHILDREN: tuple[WaitKind, ...] = ("child", "queue", "message", "full-pipe", "pool", "workers")
_IN_MEMORY: tuple[WaitKind, ...] = ("queue", "notice", "undone")
_OF_WORKERS: tuple[WaitKind, ...] = (
    "queue",
    "message",
    "full-queue",
    "full-pipe",
    "notice",
    "barrier",
    "undone",
    "lock",
)
_OF_READERS: tuple[WaitKind, ...] = ("full-queue", "unread-queue")
_BEFORE_NS = 1_000_000_000


def last_wait(job: JobView, ended: ProcessView) -> tuple[ProcessView, Stood] | None:
    """Who waits at the end, and for what; None where that may be chance, or work. `ended`: by a signal from outside."""
    chain = list(wait_chain(job, ended))
    device = wait_for_device(job, *chain[-1]) if chain else None
    if chain and chain[-1][1].kind in OF_DEVICE and device is None:
        chain = chain[:-1]  # it works, as far as is known
    if not chain:
        return None
    chain = _from_parent(job, chain)
    ended = chain[0][0]
    untaken, unread = untaken_queue(job, chain), unread_by_parent(job, chain)
    if untaken is not None or _reader_is_to_blame(chain):
        chain = [*chain[:-2], chain[-1], chain[-2]]
    view, wait = chain[-1]
    if wait.kind != "forked-openmp" and not from_time_limit(job, ended):
        return None
    if wait.kind == "open" or serves_a_working_parent(job, view, wait):
        return None  # it may have been opening one file of many
    between = is_between_processes(view)
    asks = wait.kind == "message" or (wait.kind == "queue" and between)
    gone = _children_gone(job, view) if asks else ()
    locks = crossed_locks(view) or crossed_processes(job, view) if wait.kind == "lock" else None
    found = Stood(
        wait,
        tuple(chain[:-1]),
        ended,
        thread_behind(view, wait),
        handled_at_end(view),
        ended_receiver(job, view, wait),
        gone,
        locks,
        next(iter(_loading(job, view)), None) if wait.kind == "queue" else None,
        unsent_of(job, view) if wait.kind == "queue" and between else None,
        starved_pool(view) if wait.kind == "notice" else None,
        tuple(children_at_work(job, view)) if wait.kind in _OF_CHILDREN or (wait.kind == "undone" and between) else (),
        together=waiters_there(job, wait) if wait.kind in ("barrier", "forked-native") else 0,
        task=failed_task(view, wait) if wait.kind in _IN_MEMORY and not between else None,
        holder=lock_holder(view) if wait.kind == "lock" and locks is None else None,
        alone=wait.kind in _IN_MEMORY and no_other_could(view),
        device=device,
        both=both_wait(job, view, wait),
        forked=forked_lock(view, wait, parent_of(job, view)) if wait.kind == "forked-lock" else None,
        unasked=_unasked(view, wait, gone),
        without=lost_task(job, view, wait),
        untaken=untaken,
        unread_by=unread,
        reader=ended_reader(job, chain),
        started=_started(job, view, wait) if wait.kind == "forked-notice" else None,
        unmade=unmade_object(job, view) if lost_results(view, wait) else None,
        filler=ended_filler(view, wait),
        unread_end=unread_at_exit(job, view, wait),
        exited=exited_workers(job, view, wait),
        undone=undone_items(job, view, wait),
        threads=thread_reason(job, view, wait)
        or awaited_reason(view, wait)
        or taken_twice(view, wait)
        or _of_children(job, chain)
        or _without_end(view, wait),
        spawner=lost_spawner(job, view) if wait.kind in _OF_WORKERS else None,
    )
    left = left_children(job, ended) if not _is_told_otherwise(found) else None
    return (left.parent, Stood(left.wait, (), left.parent, left=left)) if left is not None else (view, found)


def _is_told_otherwise(found: Stood) -> bool:
    """Whether more is known of a child that waits than that nobody tells it to end."""
    return any(
        item is not None
        for item in (found.thread, found.handled, found.unsent, found.task, found.untaken, found.exited, found.spawner)
    )


def _from_parent(job: JobView, chain: list[tuple[ProcessView, ProcessWait]]) -> list[tuple[ProcessView, ProcessWait]]:
    """With the parent that joins it, of a child that waits for a reader and was the first to obey the signal."""
    view, wait = chain[0]
    parent = parent_of(job, view) if wait.kind in _OF_READERS else None
    if parent is None or not from_time_limit(job, parent):
        return chain
    above = list(wait_chain(job, parent))
    kinds = [item.kind for _, item in above]
    return above if kinds == ["child", wait.kind] else chain


def _reader_is_to_blame(chain: Sequence[tuple[ProcessView, ProcessWait]]) -> bool:
    """Whether its child waits until it reads, or for its next task: it waits for something else meanwhile."""
    if len(chain) < 2:
        return False
    (reader, wait), (child, last) = chain[-2:]
    if last.kind == "message" or wait.kind == "message":
        return last.kind == wait.kind
    idle = last.kind == wait.kind == "queue" and is_between_processes(reader) and is_between_processes(child)
    return last.kind in UNREAD or idle


def _children_gone(job: JobView, view: ProcessView) -> tuple[ProcessView, ...]:
    """Its children, if all had ended a while before it, and none by a signal: that is a death of its own."""
    children = children_of(job, view)
    ended = view.ended_ns
    if ended is None or any(item.ended_ns is None or item.ended_ns > ended - _BEFORE_NS for item in children):
        return ()
    return tuple(children) if all(item.process.status_kind == "exited" for item in children) else ()


def _unasked(view: ProcessView, wait: ProcessWait, gone: Sequence[ProcessView]) -> UnaskedTasks | None:
    """Where an argument cannot be passed, or where all workers ended as those of a pool do."""
    found = unasked_tasks(view, wait) if wait.kind == "queue" and is_between_processes(view) else None
    well = bool(gone) and all(item.process.exit_code == 0 for item in gone)
    return found if found is not None and (found.refused is not None or well) else None


def _of_children(job: JobView, chain: Sequence[tuple[ProcessView, ProcessWait]]) -> ThreadReason | None:
    """Why children do not end that all wait at one line for what their parent should put, which joins them."""
    view, wait = chain[-1]
    above = chain[-2][0] if len(chain) > 1 else parent_of(job, view)
    joins = wait_of(above) if above is not None else None
    if above is None or joins is None:
        return None
    running = [item for item in children_of(job, above) if end_of(item) is not None and program_stack(item)]
    if any((own := wait_of(item)) is None or own.kind != wait.kind or own.at != wait.at for item in running):
        return None
    return process_reason(view, above, len(running), wait, joins)


def _without_end(view: ProcessView, wait: ProcessWait) -> ThreadReason | None:
    """Of a program that worked until then: its loop over a DataLoader that never ends was met between two batches."""
    end = end_of(view)
    if wait.kind != "queue" or end is None or not waits_for_loader(view) or pause_of(view, end.mono_ns) is not None:
        return None
    work = endless_work(view, main_stack(view), program_stack(view), blocked=False)
    return ThreadReason(work.reason.words, work.reason.advice) if work is not None else None


def _started(job: JobView, view: ProcessView, wait: ProcessWait) -> ParentThread | LibraryThread | None:
    """What a forked child waits for."""
    parent = parent_of(job, view)
    return parent_thread(view, wait, parent) or library_thread(view, wait, parent)


def _loading(job: JobView, view: ProcessView) -> list[ProcessView]:
    """Its DataLoader workers that were inside a batch when the signal came."""
    end = asked_to_end(view.process)
    return loading_workers(job, view, end.mono_ns) if end is not None and waits_for_loader(view) else []
