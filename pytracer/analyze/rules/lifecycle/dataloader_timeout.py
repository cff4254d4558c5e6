"""dataloader-timeout: a rank gave up waiting for its DataLoader workers, which were still loading.

What: "DataLoader timed out after ... seconds": no worker delivered a batch within the loader's `timeout`. No peer is
involved.

Why it happens: one sample is slow or never ready - a file on a network file system, a download, a lock, a loop that
tries until something fits - or the workers get too little CPU time for a whole batch.

A batch that a worker could not send was dropped: the loader waits for it for ever. A worker that was forked may wait
for a lock that a thread of its parent held then.

A worker that was forked and stands in a collective of torch.distributed never comes back: the threads of the process
group exist in its parent only. That is a misuse, whatever the time-out.

What to do: look at the samples and the line of the named worker; a healthy but slow loader needs a larger `timeout`,
more workers or smaller batches.

How it can be wrong: the line is where the worker was when its parent ended it, soon after the time-out. A worker whose
recording was overwritten or lost is not named.
"""

from __future__ import annotations

import msgspec

from pytracer._text import capital, uncapital
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.exceptions.loaders import (
    loader_timeout,
    loading_evidence,
    loading_words,
    loading_workers,
)
from pytracer.analyze.evidence.waits.forked_locks import ForkedLock, forked_lock
from pytracer.analyze.evidence.waits.stood_loop import StoodLoop, stood_loop
from pytracer.analyze.evidence.waits.unsent import Unsent, unsent_advice, unsent_of
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waits import wait_of
from pytracer.analyze.evidence.waits.worker_collectives import WorkerCollective, collective_in_worker, worker_advice
from pytracer.analyze.naming import introduction, name_words, place_words, short_file
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, merge_alike, not_found
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import PythonFrame, VerdictClass

_LISTED = 3


class _Wait(msgspec.Struct, frozen=True):
    """The loader's time-out, and the workers that were loading when it passed, the longest first.

    `collective`: in which the first of them stood.
    """

    seconds: str
    loading: tuple[ProcessView, ...]
    collective: WorkerCollective | None = None
    lock: ForkedLock | None = None
    """That the first of them waits for."""
    unsent: Unsent | None = None
    """A batch that was dropped."""


def _beside(loop: StoodLoop, view: ProcessView) -> str:
    """The next step for a loop of a worker: its lines may be of another file than that of the line that gave up."""
    if view.python_frame is None or loop.at.file == view.python_frame.file:
        return loop.advice
    return f"In {short_file(loop.at.file)}: {uncapital(loop.advice)}"


class DataLoaderTimeout:
    """Fires for processes whose exception is the DataLoader's time-out."""

    id = "dataloader-timeout"
    needs = ("EXCEPTION", "WORKER")

    def check(self, job: JobView) -> tuple[Judgement[_Wait], ...] | NoFinding:
        """One judgement per process."""
        judged = merge_alike((_judge(job, view) for view in job.suspects), lambda item: item.views[0].index)
        return judged or not_found("no process gave up waiting for its DataLoader workers")

    def describe(self, job: JobView, judgement: Judgement[_Wait]) -> Description:
        """See Rule."""
        view, wait = judgement.views[0], judgement.found
        at = f" at {place_words(view.python_frame)}" if view.python_frame is not None else ""
        gave_up = f"{introduction(judgement.views)} gave up after {wait.seconds} s{at}"
        if wait.unsent is not None:
            return Description(
                f"{gave_up}: {wait.unsent.words}.",
                [wait.unsent.evidence],
                unsent_advice(view, ProcessWait("queue", view.python_frame), wait.unsent),
                line=wait.unsent.limit.line if wait.unsent.limit is not None else None,
            )
        if not wait.loading:
            return Description(
                f"{gave_up}: no DataLoader worker delivered a batch.",
                [],
                "Run with num_workers=0 to see where loading a batch takes the time; `timeout` limits the wait.",
                ["what the workers were loading: no worker with a recording was inside a batch"],
            )
        slow, at_ns = wait.loading[0], view.process.exception_mono_ns
        if wait.collective is not None:
            found = wait.collective
            return Description(
                f"{capital(found.words)}: {found.reason}; {uncapital(gave_up)}.",
                [loading_evidence(other, at_ns) for other in wait.loading[:_LISTED]],
                worker_advice(found),
            )
        if wait.lock is not None:
            return Description(
                f"{gave_up}: {_worker(slow)} {wait.lock.words}.",
                [loading_evidence(other, at_ns) for other in wait.loading[:_LISTED]],
                wait.lock.advice,
                line=wait.lock.taken,
            )
        place = place_words(slow.python_frame) if slow.python_frame is not None else None
        loop = stood_loop(slow)
        if loop is not None and loop.confidence is not None and loop.reason is not None:
            return Description(
                f"{gave_up}: {loading_words(slow, at_ns)} {loop.loop_words}; {loop.reason.words}.",
                [loading_evidence(other, at_ns) for other in wait.loading[1:_LISTED]],
                _beside(loop, view),
                line=loop.at,
                behind=Behind.of([], PythonFrame(file=loop.at.file, line=loop.line)),
            )
        return Description(
            f"{gave_up}: {loading_words(slow, at_ns)}{f' at {place}' if place else ''}.",
            [loading_evidence(other, at_ns) for other in wait.loading[1:_LISTED]],
            f"Look at {place or 'these samples'}: find out what {_worker(slow)} does or waits for there. If loading "
            f"a batch may take that long, raise the DataLoader's timeout ({wait.seconds} s).",
            [None if place else "the line of the worker: its recording has no stack of its end"],
            line=slow.python_frame,
            behind=Behind(),
        )


def _judge(job: JobView, view: ProcessView) -> Judgement[_Wait] | None:
    seconds = loader_timeout(view)
    if seconds is None:
        return None
    loading = loading_workers(job, view, view.process.exception_mono_ns)
    slow = loading[0] if loading else None
    waits = wait_of(slow) if slow is not None else None
    found = _Wait(
        seconds,
        tuple(loading),
        collective_in_worker(slow) if slow is not None else None,
        forked_lock(slow, waits, view) if slow is not None and waits is not None else None,
        unsent_of(job, view) if slow is None else None,
    )
    verdict_class: VerdictClass = "python-exception" if found.collective is None else "misuse"
    return Judgement(verdict_class, "certain" if loading else "likely", (view,), found)


def _worker(view: ProcessView) -> str:
    return name_words([view])
