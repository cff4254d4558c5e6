"""Two processes of one parent that took two locks of multiprocessing in different orders: each waits for the other."""

from __future__ import annotations

from collections.abc import Iterator

from pytracer.analyze.evidence.waits.held_locks import inside_of, taken_at, waits_between
from pytracer.analyze.evidence.waits.lock_order import CrossedLocks, LockWait
from pytracer.analyze.evidence.waits.waits import main_stack, wait_of
from pytracer.analyze.kin import children_of, parent_of
from pytracer.analyze.naming import name_words
from pytracer.analyze.view import JobView, ProcessView


def crossed_processes(job: JobView, view: ProcessView) -> CrossedLocks | None:
    """By the names that the locks have in the source of both; None where no other process waits so."""
    for other in _beside(job, view) if waits_between(view) else ():
        found = _crossed(view, other) if waits_between(other) else None
        if found is not None:
            return found
    return None


def _crossed(view: ProcessView, other: ProcessView) -> CrossedLocks | None:
    waits = [wait.at for item in (view, other) if (wait := wait_of(item)) is not None and wait.at is not None]
    if len(waits) != 2 or any(at.line is None for at in waits):
        return None
    wanted = [taken_at(item, at) for item, at in zip((view, other), waits, strict=True)]
    holds = [inside_of(item, main_stack(item), asked) for item, asked in ((view, wanted[1]), (other, wanted[0]))]
    own, theirs = holds
    if own is None or theirs is None or own.lock in wanted[0].values() or theirs.lock in wanted[1].values():
        return None
    first = LockWait(None, waits[0], frozenset({theirs.lock}), {own.lock: own.line})
    second = LockWait(None, waits[1], frozenset({own.lock}), {theirs.lock: theirs.line})
    return CrossedLocks(first, second, process=name_words([other]))


def _beside(job: JobView, view: ProcessView) -> Iterator[ProcessView]:
    """Its parent, and the other children of that."""
    parent = parent_of(job, view)
    if parent is not None:
        yield parent
        yield from (item for item in children_of(job, parent) if item.index != view.index)
