"""oom-kill: the kernel's OOM killer ended a process.

What: SIGKILL, and a counter or the log of the kernel shows that its OOM killer ended this process: the log names its
pid, or the kills counted in its memory cgroup went up while the job ran. The counters are noted by `pytracer run`
before the job starts and after it ended.

Why it happens: the processes of a memory cgroup (a container, a Slurm step) reached its limit, or the machine ran out
of memory. The largest process is ended, which need not be the one that grew.

Of a rank that was killed between two collectives of one function, the lines between them are named, and those that
make new arrays.

What to do: see what held the memory; use fewer or smaller DataLoader workers and batches, or raise the limit.

How it can be wrong: the machine's counter alone may refer to any process, so it is at most *likely*. When more
processes were killed than the cgroup counted, one of them was ended by another sender. Inside a container the log's
pids are those of the host and are not compared.
"""

from __future__ import annotations

from pytracer._patterns import Pattern
from pytracer._text import size_words
from pytracer.analyze.collectives.between_calls import between_calls
from pytracer.analyze.evidence.ends.memory_holders import holder_advice, holder_evidence
from pytracer.analyze.evidence.ends.oom import OomTrace, killed_by_sigkill, oom_trace
from pytracer.analyze.evidence.ends.sigkill import elimination, other_candidates
from pytracer.analyze.evidence.ends.signal_senders import sender_is_sure
from pytracer.analyze.evidence.ends.worker_caches import worker_cache
from pytracer.analyze.evidence.phrases import collective_evidence, python_evidence
from pytracer.analyze.kin import parent_of
from pytracer.analyze.naming import introduction, name_words
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, cannot_decide, not_found
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.journal import Loader

_ADVICE = (
    "Find what held the memory: {}, or a higher limit. The largest process is ended, which need not be the one that "
    "grew."
)
_WITH_LOADER = "fewer or smaller DataLoader workers, batches or caches"
_WITHOUT_LOADER = "less data at once in each process, fewer processes side by side, smaller caches"
_POOL = Pattern(r"\bBrokenProcessPool$|\bTerminatedWorkerError$")
_ENDED = {"certain": "was ended", "likely": "was probably ended", "possible": "may have been ended"}


class OomKill:
    """Fires for each killed process that the kernel's OOM killer may have ended."""

    id = "oom-kill"
    needs = ("status", "witness")

    def check(self, job: JobView) -> tuple[Judgement[OomTrace], ...] | NoFinding:
        """One judgement per process."""
        views = [view for view in job.suspects if killed_by_sigkill(view) or view.process.status_kind == "vanished"]
        if not views:
            return not_found("no process was ended by SIGKILL")
        traces = [(view, oom_trace(job, view)) for view in views]
        judged = [_judge(job, view, trace) for view, trace in traces if trace is not None]
        found = tuple(item for item in judged if item is not None)
        if found:
            return found
        if all(trace is not None and trace.excluded for _, trace in traces):
            return not_found("the kernel counted no OOM kill of these processes")
        return cannot_decide("counters and log of the kernel were not recorded, or not after the death")

    def describe(self, job: JobView, judgement: Judgement[OomTrace]) -> Description:
        """See Rule."""
        view = judgement.views[0]
        ended, cache = _ENDED[judgement.confidence], worker_cache(job, view)
        between = between_calls(job, view)
        was = f"; {between.words}" if between is not None else ""
        there = f" {between.advice}" if between is not None and between.advice is not None else ""
        return Description(
            f"{introduction(judgement.views)}{_worker_words(job, view)} {ended} by the kernel's OOM killer"
            f"{_limit_words(judgement.found)}{f'; {cache.words}' if cache is not None else ''}{was}.",
            [
                *holder_evidence(job, view),
                between.evidence if between is not None else None,
                *elimination(job, view, judgement.found),
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            cache.advice(None)
            if cache is not None
            else _ADVICE.format(_WITH_LOADER if _has_loader(job) else _WITHOUT_LOADER) + holder_advice(view) + there,
            [
                None if judgement.confidence == "certain" else "the kernel's own word that it ended this process",
                between.missing if between is not None else None,
            ],
        )


def _worker_words(job: JobView, view: ProcessView) -> str:
    """Whose worker it was, where a process pool of its parent broke for it: of an early death only the pid is known."""
    parent = parent_of(job, view)
    if parent is None or parent.exception is None or not _POOL.search(parent.exception.type or ""):
        return ""
    return f", a worker of the process pool of {name_words([parent])},"


def _limit_words(trace: OomTrace) -> str:
    """` at the limit of 500.0 MiB of its memory cgroup`."""
    group = trace.group.group
    if trace.group.way != "own" or group is None or group.limit is None:
        return ""
    return f" at the limit of {size_words(group.limit)} of its memory cgroup"


def _has_loader(job: JobView) -> bool:
    return any(
        view.process.role == "dataloader-worker" or next(iter(view.process.snapshot.recorded(Loader)), None) is not None
        for view in job.views
    )


def _judge(job: JobView, view: ProcessView, trace: OomTrace) -> Judgement[OomTrace] | None:
    confidence = trace.confidence
    if view.senders and sender_is_sure(view) and trace.log.way != "names-it":
        return None  # who was alive when another process killed it was not killed by the kernel before
    if confidence is None or (confidence != "certain" and view.process.status_kind == "vanished"):
        return None
    if confidence == "likely" and other_candidates(job, view):
        confidence = "possible"
    return Judgement("oom-kill", confidence, (view,), trace)
