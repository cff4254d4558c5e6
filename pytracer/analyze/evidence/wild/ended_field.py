"""Memory of an array that ended, whose address alone a structure, an array of addresses or an attribute handed to C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytracer._text import hex_addr
from pytracer.analyze.evidence.own_code.lent_memory import LentMemory, lent_memory
from pytracer.analyze.evidence.phrases import access_verb
from pytracer.analyze.evidence.wild.address import was_large_block
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, Evidence


@dataclass(frozen=True)
class EndedField(Explanation):
    """See LentMemory."""

    verdict_class = "use-after-free"
    names_source = True
    lent: LentMemory

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        lent = self.lent
        return "certain" if lent.proof is not None and lent.alone and not lent.ended.assumed else "likely"

    def access(self, view: ProcessView) -> str | None:
        """See Explanation."""
        at = f" at {hex_addr(view.place.addr)}" if view.place is not None else ""
        return f"{access_verb(view)} freed memory{at},"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        lent, ended = self.lent, self.lent.ended
        of = f" of {ended.function}()" if ended.function != "<module>" else ""
        what = f"`{ended.owner}`{of}" if ended.is_variable else f"`{ended.owner}`, a temporary"
        who = lent.holder if lent.holder is not None else "what the line passes"
        likely = "" if self.confidence(view) == "certain" else "likely "
        address = "the address" if ended.given.line == ended.made.line else f"the address, taken at {ended.given},"
        return f": {who} {likely}had only {address} of {what} ({ended.made}), which {ended.ended}"

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation."""
        return (self.lent.proof, address)

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        ended, holder = self.lent.ended, self.lent.holder
        what = f"`{ended.owner}`" if ended.is_variable else f"`{ended.owner}` in a variable"
        of_structure = holder is not None and " of " in holder
        where = "in a list or an attribute"
        if ended.ended.endswith("returned"):
            where = f"return it with {'the structure' if of_structure else 'the address'}, or set it as an attribute"
            where = f"{where} of {'that or of self' if of_structure else 'self'}"
        kind = "a pointer, of which only the number is taken: that" if ".data_as(" in ended.taken else "a number, which"
        return (
            f"Keep {what} until native code has returned: {where}, at {ended.given}. `{ended.taken}` is {kind} "
            "keeps no array alive. Smaller arrays are freed as well, but mostly stay readable: C then reads what "
            "others write there, without a crash, so check the results so far."
        )


def ended_field(view: ProcessView) -> EndedField | None:
    """Where the address was found in what the line passes."""
    found = lent_memory(view, proven=True)
    return EndedField(found) if found is not None else None


def ended_address(view: ProcessView) -> EndedField | None:
    """By the source alone, where the address is the start of a large block of malloc()."""
    found = lent_memory(view, proven=False) if was_large_block(view) else None
    return EndedField(found) if found is not None else None
