"""oom-kill: the kernel's OOM killer ended a process.

What: SIGKILL, and a counter or the log of the kernel says that its OOM killer ended this process: the log names its
pid, or the kills counted in its memory cgroup went up while the job ran. The counters are noted by `pytracer run`
before the job starts and after it ended.

Why it happens: the processes of a memory cgroup (a container, a Slurm step) reached its limit, or the machine ran out
of memory. The largest process is ended, which need not be the one that grew.

What to do: see what held the memory; use fewer or smaller DataLoader workers and batches, or raise the limit.

How it can be wrong: the machine's counter alone may have met any process, so it is at most *likely*. When more
processes were killed than the cgroup counted, one of them was ended by somebody else. Inside a container the log's
pids are those of the host and are not compared.
"""

from __future__ import annotations

from pytracer.analyze.evidence.oom import OomTrace, killed_by_sigkill, oom_trace
from pytracer.analyze.evidence.phrases import collective_evidence, python_evidence
from pytracer.analyze.evidence.sigkill import elimination, other_candidates
from pytracer.analyze.view import Draft, JobView, Outcome, ProcessView, cannot_decide, draft, not_found

_ADVICE = (
    "Find what held the memory: fewer or smaller DataLoader workers, batches or caches, or a higher limit. The largest "
    "process is ended, which need not be the one that grew."
)


class OomKill:
    """Fires for each killed process that the kernel's OOM killer may have ended."""

    id = "oom-kill"
    needs = ("status", "witness")

    def examine(self, job: JobView) -> Outcome:
        """One finding per process."""
        views = [view for view in job.suspects if killed_by_sigkill(view) or view.process.status_kind == "vanished"]
        if not views:
            return not_found("no process was ended by SIGKILL")
        traces = [(view, oom_trace(job, view)) for view in views]
        drafts = [item for view, trace in traces if trace and (item := self._draft(job, view, trace)) is not None]
        if drafts:
            return Outcome(tuple(drafts))
        if all(trace is not None and trace.excluded for _, trace in traces):
            return not_found("the kernel counted no OOM kill of these processes")
        return cannot_decide("counters and log of the kernel were not recorded, or not after the death")

    def _draft(self, job: JobView, view: ProcessView, trace: OomTrace) -> Draft | None:
        confidence = trace.confidence
        if confidence is None or (confidence != "certain" and view.process.status_kind == "vanished"):
            return None
        if confidence == "likely" and other_candidates(job, view):
            confidence = "possible"
        words = {"certain": "was ended", "likely": "was probably ended", "possible": "may have been ended"}[confidence]
        evidence = [*map(str, elimination(job, view, trace)), python_evidence(view), collective_evidence([view])]
        summary = f"{view.subject} {words} by the kernel's OOM killer."
        missing = None if confidence == "certain" else "the kernel's own word that it ended this process"
        return draft(self.id, "oom-kill", confidence, [view], summary, evidence, _ADVICE, [missing])
