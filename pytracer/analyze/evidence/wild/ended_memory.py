"""Memory of an array that ended, in an array of NumPy that was made of its address; NumPy's memory is not recorded."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from pytracer.analyze.evidence.lifetime.ended_owner import EndedOwner, ended_array
from pytracer.analyze.evidence.phrases import access_verb
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence


@dataclass(frozen=True)
class EndedMemory(Explanation):
    """See EndedOwner."""

    verdict_class = "use-after-free"
    names_source = True
    owner: EndedOwner

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def access(self, view: ProcessView) -> str | None:
        """See Explanation."""
        return f"{access_verb(view)} memory that is gone,"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return f": {structs.replace(self.owner, assumed=True).summary}"

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return self.owner.advice


def ended_memory(view: ProcessView) -> EndedMemory | None:
    """None where NumPy did not make the access, or the failing line passes no such array."""
    owner = ended_array(view)
    return EndedMemory(owner) if owner is not None else None
