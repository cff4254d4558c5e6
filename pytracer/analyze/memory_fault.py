"""What the rules about refused memory accesses share: which processes they look at, and how findings are made.

A rule subclasses `MemoryFaultRule` and says which faults are its own and what each means.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer.analyze.signals import SIGBUS, SIGSEGV
from pytracer.analyze.view import (
    Draft,
    JobView,
    Outcome,
    ProcessView,
    cannot_decide,
    group_alike,
    not_found,
    subject_words,
)


class MemoryFaultRule:
    """One finding per group of processes that died alike. Subclasses give `id`, `needs` and the three methods."""

    id: str
    needs: tuple[str, ...]

    def examine(self, job: JobView) -> Outcome:
        """Findings, or why there are none."""
        faults = [view for view in job.suspects if is_memory_fault(view)]
        if not faults:
            return _no_memory_fault(job)
        drafts = [self.explain(views) for views in group_alike([view for view in faults if self.applies(view)])]
        return Outcome(tuple(drafts)) if drafts else self.otherwise(faults)

    def applies(self, view: ProcessView) -> bool:
        """Whether this fault is the rule's own."""
        raise NotImplementedError

    def explain(self, views: Sequence[ProcessView]) -> Draft:
        """The finding about processes that died alike; the first stands for all."""
        raise NotImplementedError

    def otherwise(self, faults: Sequence[ProcessView]) -> Outcome:
        """Why no fault was the rule's own."""
        raise NotImplementedError


def is_memory_fault(view: ProcessView) -> bool:
    """Whether the kernel refused a memory access of this process."""
    if view.crash is None or view.raised:
        return False
    return view.is_fault and view.crash.signal in (SIGSEGV, SIGBUS) and view.place is not None


def _no_memory_fault(job: JobView) -> Outcome:
    unseen = [
        view
        for view in job.suspects
        if view.crash is None and view.process.status_kind == "signaled" and view.process.signal in (SIGSEGV, SIGBUS)
    ]
    if unseen:
        return cannot_decide(f"{subject_words(unseen)} died of a memory fault, but the black box has no crash record")
    return not_found("nothing died of a memory fault")
