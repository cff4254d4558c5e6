"""A container of the program's own C++ that a loop left, which counts by another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytracer.analyze.evidence.own_code.vector_bounds import VectorBounds, vector_bounds
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, Evidence


@dataclass(frozen=True)
class ShortVector(Explanation):
    """`found`: the loop, and both lengths."""

    verdict_class = "out-of-bounds"
    names_source = True
    found: VectorBounds

    @property
    def is_explained(self) -> bool:
        """See Explanation."""
        return True

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "certain" if self.found.register is not None and self.found.bound.value is not None else "likely"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return f": {self.found.summary}"

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation."""
        return (self.found.evidence, address)

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return self.found.advice


def short_vector(view: ProcessView) -> ShortVector | None:
    """None where the source does not show both lengths."""
    found = vector_bounds(view)
    return ShortVector(found) if found is not None else None
