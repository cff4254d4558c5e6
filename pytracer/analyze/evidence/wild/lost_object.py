"""An object of Python's that was freed too early, as the program's own C took references from it."""

from __future__ import annotations

from dataclasses import dataclass

from pytracer.analyze.evidence.own_code.lost_references import LostReference, lost_reference
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence


@dataclass(frozen=True)
class LostObject(Explanation):
    """See LostReference."""

    verdict_class = "use-after-free"
    names_source = True
    lost: LostReference

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return f": {self.lost.summary}"

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return self.lost.advice


def lost_object(view: ProcessView) -> LostObject | None:
    """None where the interpreter freed and visited nothing, or no source shows such a reference."""
    lost = lost_reference(view)
    return LostObject(lost) if lost is not None else None
