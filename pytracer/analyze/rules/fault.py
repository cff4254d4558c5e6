"""What the rules about faults share: which processes they look at, and that those that died alike share a finding.

A rule subclasses `FaultRule` with its signals, or `MemoryFaultRule` for refused memory accesses, and judges one
process at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic

from pytracer._text import list_words
from pytracer.analyze.naming import subject_words
from pytracer.analyze.platform.signals import SIGBUS, SIGSEGV, signal_name
from pytracer.analyze.rules.base import (
    Description,
    F,
    Judgement,
    NoFinding,
    cannot_decide,
    merge_alike,
    not_found,
)
from pytracer.analyze.view import JobView, ProcessView


class FaultRule(ABC, Generic[F]):
    """One finding per group of processes that died alike. Subclasses give `id`, `needs`, `signals` and what differs."""

    id: str
    needs: tuple[str, ...]
    signals: tuple[int, ...]

    def check(self, job: JobView) -> tuple[Judgement[F], ...] | NoFinding:
        """See Rule."""
        faults = [view for view in job.suspects if self.is_fault(view)]
        if not faults:
            return self._no_fault(job)
        return merge_alike(self.judge(view) for view in faults) or self.otherwise(faults)

    def is_fault(self, view: ProcessView) -> bool:
        """Whether the kernel raised one of the rule's signals because of what this process did."""
        crash = view.crash
        return crash is not None and not view.raised and view.is_fault and crash.signal in self.signals

    @abstractmethod
    def judge(self, view: ProcessView) -> Judgement[F] | None:
        """The judgement about one process; None where the fault is not the rule's own."""

    @abstractmethod
    def describe(self, job: JobView, judgement: Judgement[F]) -> Description:
        """See Rule; the first process represents all that died alike."""

    @abstractmethod
    def otherwise(self, faults: Sequence[ProcessView]) -> NoFinding:
        """Why no fault was the rule's own."""

    def fault_words(self) -> str:
        """What the rule's signals are called: `SIGILL`."""
        return list_words([signal_name(number) for number in self.signals])

    def _no_fault(self, job: JobView) -> NoFinding:
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


class MemoryFaultRule(FaultRule[F]):
    """The rules about memory accesses that the kernel refused."""

    signals: tuple[int, ...] = (SIGSEGV, SIGBUS)

    def is_fault(self, view: ProcessView) -> bool:
        """See FaultRule."""
        return view.place is not None and super().is_fault(view)

    def fault_words(self) -> str:
        """See FaultRule."""
        return "a memory fault"


class StorageFaultRule(MemoryFaultRule[F]):
    """Those that rest on the recorded storages. Subclasses give `absent`: why no fault was their own."""

    needs: tuple[str, ...] = ("crash", "storages")
    absent: str

    def otherwise(self, faults: Sequence[ProcessView]) -> NoFinding:
        """See FaultRule."""
        if not any(view.process.snapshot.storages for view in faults):
            return cannot_decide("no storages were recorded")
        return not_found(self.absent)
