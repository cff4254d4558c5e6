"""An index that the failing line of the program's own native code read from arrays which are not recorded.

That it is wrong is an inference, and which number it was is not known: the source shows only where it came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytracer.analyze.evidence.own_code.unchecked_lookups import UncheckedLookup, unchecked_lookup
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.evidence.wild.far_index import FarIndex
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, Evidence


@dataclass(frozen=True)
class ByLookup(Explanation):
    """Where only the address is known."""

    found: UncheckedLookup

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return f": the index {self.found.summary}"

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation."""
        return (self.found.evidence, address)

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return self.found.advice


@dataclass(frozen=True)
class ByFarLookup(ByLookup):
    """Where a register held the index."""

    verdict_class = "out-of-bounds"
    far: FarIndex

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return f": index {self.far.value} leads out of an array, and {self.found.summary}"

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation."""
        return (self.found.evidence, *self.far.evidence(view, address))


def by_lookup(view: ProcessView) -> ByLookup | None:
    """None where the source leaves several arrays that the index may be wrong in."""
    found = unchecked_lookup(view)
    return ByLookup(found) if found is not None else None


def by_far_lookup(view: ProcessView, far: FarIndex) -> FarIndex | ByFarLookup:
    """The same with an index that is known; only that where a tensor has its number."""
    found = unchecked_lookup(view) if far.own is None and not far.is_converted and not far.is_of_tensor(view) else None
    return ByFarLookup(found, far) if found is not None else far
