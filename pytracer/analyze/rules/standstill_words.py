"""standstill: its sentences, advice and evidence."""

from __future__ import annotations

import msgspec

from pytracer._text import capital
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.ends.dismissed_children import dismissed_evidence
from pytracer.analyze.evidence.exceptions.unmade import UnmadeError
from pytracer.analyze.evidence.exceptions.unmade_results import UnmadeResult
from pytracer.analyze.evidence.waits.ended_fillers import EndedFiller
from pytracer.analyze.evidence.waits.ended_threads import (
    ended_thread_evidence,
)
from pytracer.analyze.evidence.waits.exited_workers import ExitedWorkers
from pytracer.analyze.evidence.waits.forked_pool import ForkedPool
from pytracer.analyze.evidence.waits.forked_pool_words import pool_of
from pytracer.analyze.evidence.waits.killed_holder import KilledHolder
from pytracer.analyze.evidence.waits.left_children import LeftChildren
from pytracer.analyze.evidence.waits.left_locks import left_lock
from pytracer.analyze.evidence.waits.library_threads import LibraryThread
from pytracer.analyze.evidence.waits.lost_lock import LostLock
from pytracer.analyze.evidence.waits.parent_death import LostSpawner
from pytracer.analyze.evidence.waits.parent_threads import ParentThread
from pytracer.analyze.evidence.waits.standing_threads import ThreadReason
from pytracer.analyze.evidence.waits.stood import Stood, advice_of, only_words, unread_words, why_words
from pytracer.analyze.evidence.waits.stood_end import end_words, ranks_meanwhile
from pytracer.analyze.evidence.waits.stood_loop import stood_loop
from pytracer.analyze.evidence.waits.unread_at_exit import UnreadAtExit
from pytracer.analyze.evidence.waits.untaken_queues import UntakenQueue
from pytracer.analyze.evidence.waits.wait_chain import (
    at_words,
    waiters_there,
)
from pytracer.analyze.evidence.waits.wait_words import wait_words
from pytracer.analyze.evidence.waits.waiting_alike import waits_evidence
from pytracer.analyze.naming import introduction, name_words, subject_words
from pytracer.analyze.rules.base import Description, Judgement
from pytracer.analyze.view import JobView
from pytracer.report.job import PythonFrame

_LONG = 200  # characters of a headline before its end
_HOW_LONG = "how long it had waited: the stacks are of the moment of the signal"
_WORKER = "the line of the worker: its recording has no stack of its end"
_THREADS = "which threads the library had in the parent and in the child"
_KERNEL = "whether a kernel never ends or was only slow: the device is not asked for that"


def description_of(job: JobView, judgement: Judgement[Stood]) -> Description:
    """The wait, what may never end it, and how it ended; where a reason has its own sentence, that one."""
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
            pool or found.unmade or found.started or found.filler or found.spawner or found.unread_end or found.threads
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


def _describe_lost(job: JobView, judgement: Judgement[Stood], lost: LostLock) -> Description:
    return Description(
        f"{introduction(judgement.views)} {wait_words(lost.asking, lost.wait)}{at_words(lost.wait)}; {lost.words}; "
        f"{lost.killed_words(job)}.",
        lost.evidence,
        lost.advice,
        ["whether the killed process held the lock: it left no stack"],
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
