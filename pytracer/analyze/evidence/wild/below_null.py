"""A small negative number that was used as an address: an element before an empty buffer, or an error code."""

from __future__ import annotations

from dataclasses import dataclass

from pytracer._text import hex_addr
from pytracer.analyze.address_space.null_pointer import is_below_null
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.phrases import access_verb, in_function
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.platform.instruction import signed
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence


@dataclass(frozen=True)
class BelowNull(Explanation):
    """Nothing shows which of both it was; an overwritten pointer would hold any number."""

    addr: int

    is_sufficient = False

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "possible"

    def access(self, view: ProcessView) -> str:
        """See Explanation."""
        return (
            f"{access_verb(view)} memory at {hex_addr(self.addr)}, the number {signed(self.addr)},"
            if in_function(view)
            else f"{access_verb(view)} memory at {hex_addr(self.addr)}, the number {signed(self.addr)}"
        )

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return ""

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        what = (
            f"what {line_words(view)} passes to native code" if view.python_frame else "what the native code is given"
        )
        return (
            f"Check {what} for an empty buffer or a null pointer, before which index -1 or a negative offset leads, "
            "and for a negative number (an error code, -1 for a failure) that is used as a pointer."
        )


def below_null(view: ProcessView) -> BelowNull | None:
    """None where the address is another number."""
    place = view.place
    return BelowNull(place.addr) if place is not None and is_below_null(view) else None
