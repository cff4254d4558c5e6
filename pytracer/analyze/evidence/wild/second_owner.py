"""A pointer in an object that a destructor of the program's own deletes again: it has two owners, by the source."""

from __future__ import annotations

from dataclasses import dataclass

from pytracer._text import hex_addr
from pytracer.analyze.evidence.own_code.freed_pointer import freed_pointer
from pytracer.analyze.evidence.own_code.freed_reasons import FreedPointer, OtherAllocator
from pytracer.analyze.evidence.phrases import access_verb
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence


@dataclass(frozen=True)
class SecondOwner(Explanation):
    """`freed`: why the object was freed before."""

    verdict_class = "use-after-free"
    freed: FreedPointer

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def access(self, view: ProcessView) -> str | None:
        """See Explanation."""
        at = f" through {hex_addr(view.place.addr)}" if view.place is not None else ""
        return f"{access_verb(view)}{at} while it deleted an object, likely one that had been deleted before,"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return f": {self.freed.summary}"

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return self.freed.advice


def second_owner(view: ProcessView) -> SecondOwner | None:
    """None where the crashed line deletes nothing, or its source shows one owner only."""
    found = freed_pointer(view)
    return SecondOwner(found) if found is not None and not isinstance(found, OtherAllocator) else None
