"""An address that the program's own native line made of an index which it had looked up in an array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytracer.analyze.evidence.own_code.looked_up import LookedUp, looked_up
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.evidence.wild.far_index import far_index
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, Evidence


@dataclass(frozen=True)
class LookedUpIndex(Explanation):
    """By the source, and by the recorded arrays that the line passes."""

    verdict_class = "out-of-bounds"
    names_source = True
    found: LookedUp

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return f": {self.found.summary}"

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation."""
        far = far_index(view)
        return (self.found.evidence, *(far.evidence(view, address) if far is not None else (address,)))

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return self.found.advice(view)


def looked_up_index(view: ProcessView) -> LookedUpIndex | None:
    """None where no such index is known."""
    found = looked_up(view)
    return LookedUpIndex(found) if found is not None else None
