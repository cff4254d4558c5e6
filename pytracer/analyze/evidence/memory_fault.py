"""What the rules about faults share: which processes they look at, and how findings are made.

A rule subclasses `FaultRule` with its signals, or `MemoryFaultRule` for refused memory accesses, and says which faults
are its own and what each means.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._text import list_words
from pytracer.analyze.platform.signals import SIGBUS, SIGSEGV, signal_name
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


class FaultRule:
    """One finding per group of processes that died alike. Subclasses give `id`, `needs`, `signals` and what differs."""

    id: str
    needs: tuple[str, ...]
    signals: tuple[int, ...]

    def examine(self, job: JobView) -> Outcome:
        """Findings, or why there are none."""
        faults = [view for view in job.suspects if self.is_fault(view)]
        if not faults:
            return self._no_fault(job)
        drafts = [self.explain(views) for views in group_alike([view for view in faults if self.applies(view)])]
        return Outcome(tuple(drafts)) if drafts else self.otherwise(faults)

    def is_fault(self, view: ProcessView) -> bool:
        """Whether the kernel raised one of the rule's signals because of what this process did."""
        crash = view.crash
        return crash is not None and not view.raised and view.is_fault and crash.signal in self.signals

    def applies(self, view: ProcessView) -> bool:
        """Whether this fault is the rule's own."""
        return True

    def explain(self, views: Sequence[ProcessView]) -> Draft:
        """The finding about processes that died alike; the first stands for all."""
        raise NotImplementedError

    def otherwise(self, faults: Sequence[ProcessView]) -> Outcome:
        """Why no fault was the rule's own."""
        raise NotImplementedError

    def fault_words(self) -> str:
        """What the rule's signals are called: `SIGILL`."""
        return list_words([signal_name(number) for number in self.signals])

    def _no_fault(self, job: JobView) -> Outcome:
        unseen = [
            view
            for view in job.suspects
            if view.crash is None and view.process.status_kind == "signaled" and view.process.signal in self.signals
        ]
        if unseen:
            return cannot_decide(
                f"{subject_words(unseen)} died of {self.fault_words()}, but the black box has no crash record"
            )
        return not_found(f"nothing died of {self.fault_words()}")


class MemoryFaultRule(FaultRule):
    """The rules about memory accesses that the kernel refused."""

    signals = (SIGSEGV, SIGBUS)

    def is_fault(self, view: ProcessView) -> bool:
        """See FaultRule."""
        return view.place is not None and super().is_fault(view)

    def fault_words(self) -> str:
        """See FaultRule."""
        return "a memory fault"
