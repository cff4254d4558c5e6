"""An operator of torch.library was called whose Library object had been collected: the dispatcher's entry is freed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytracer.analyze.evidence.own_code.deregistered import deregistered_at_crash
from pytracer.analyze.evidence.own_code.dropped_operators import DroppedOperators
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, Evidence


@dataclass(frozen=True)
class DeregisteredOperator(Explanation):
    """See DroppedOperators."""

    verdict_class = "use-after-free"
    names_source = True
    found: DroppedOperators

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def access(self, view: ProcessView) -> str | None:
        """See Explanation."""
        return "called an operator that had likely been taken back,"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return f": {self.found.summary}"

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation: the address is of what took the place of the operator's entry."""
        return ()

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return self.found.advice


def deregistered_operator(view: ProcessView) -> DeregisteredOperator | None:
    """None where no Library of the program was dropped, or the line called no operator."""
    found = deregistered_at_crash(view)
    return DeregisteredOperator(found) if found is not None else None
