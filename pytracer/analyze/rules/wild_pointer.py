"""wild-pointer: an address that never belonged to anything known.

What: the kernel refused an access at an address in no mapping, no live storage and no remembered freed one; or at a
non-canonical address; or at a small address whose base register held garbage instead of null.

Why it happens: memory that was overwritten or never initialised was used as a pointer, an object was cast to a
class that it is not, or an address outlived what it pointed to by so long that nobody remembers it.

What to do: look at the native function; run it under AddressSanitizer, or check the casts and lifetimes on the way
to it.

How it can be wrong: only CPU storages of torch are remembered. Memory of other allocators that was unmapped before
looks the same, as does a storage that was freed so long ago that its record was overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._words import hex_addr
from pytracer.analyze.known import known_crash
from pytracer.analyze.memory_fault import MemoryFaultRule
from pytracer.analyze.pointers import null_confidence
from pytracer.analyze.view import (
    Draft,
    Outcome,
    ProcessView,
    draft,
    not_found,
    subject_words,
)
from pytracer.analyze.wording import (
    access_verb,
    collective_evidence,
    fault_evidence,
    in_function,
    missing_operands,
    python_evidence,
)


class WildPointer(MemoryFaultRule):
    """Fires for addresses in nothing known, and for small ones that do not come from null."""

    id = "wild-pointer"
    needs = ("crash",)

    def applies(self, view: ProcessView) -> bool:
        """See MemoryFaultRule."""
        return _is_wild(view)

    def explain(self, views: Sequence[ProcessView]) -> Draft:
        """See MemoryFaultRule."""
        view = views[0]
        known = known_crash(view)
        return draft(
            self.id,
            "wild-pointer",
            _confidence(view),
            views,
            f"{subject_words(views)} {access_verb(view)} memory through a wild pointer, {_address(view)}"
            f"{',' if view.function else ''}{in_function(view)}.".replace("jumped to memory", "jumped"),
            [
                fault_evidence(view),
                _not_null(view),
                known.says if known else None,
                python_evidence(view),
                collective_evidence(views),
            ],
            known.advice
            if known
            else "Look at the native function: its pointer was overwritten, never set, or of another type. "
            "Running it under AddressSanitizer names the moment.",
            [
                missing_operands(view),
                None if view.process.snapshot.storages or _is_small(view) else "storages: none were recorded",
            ],
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> Outcome:
        """See MemoryFaultRule."""
        return not_found("every fault address belonged to something known")


def _is_wild(view: ProcessView) -> bool:
    place = view.place
    if place is None:
        return False
    if place.kind in ("null", "near-null"):
        return null_confidence(view) is None
    return place.kind in ("unmapped", "non-canonical")


def _confidence(view: ProcessView) -> str:
    if known_crash(view):
        return "certain"
    if view.place is not None and view.place.kind == "non-canonical":
        return "certain" if view.place.addr else "likely"
    return "likely" if view.process.snapshot.storages or _is_small(view) else "possible"


def _is_small(view: ProcessView) -> bool:
    return view.place is not None and view.place.kind in ("null", "near-null")


def _address(view: ProcessView) -> str:
    place = view.place
    if place is None or (place.kind == "non-canonical" and place.addr == 0):
        return "whose value the processor does not tell"
    return hex_addr(place.addr)


def _not_null(view: ProcessView) -> str | None:
    place, instruction = view.place, view.instruction
    if place is None:
        return None
    if place.kind == "non-canonical":
        return "no process can have memory at such an address (not canonical on x86-64)"
    if place.kind not in ("null", "near-null"):
        if not view.process.snapshot.storages:
            return "the address lay in no mapping"
        return "the address lay in no mapping, no live storage and no freed storage that is still remembered"
    if instruction is not None and instruction.base_value:
        return (
            f"the base register {instruction.base} held {hex_addr(instruction.base_value)}, "
            "which is neither null nor aligned as a pointer"
        )
    return "the address is not aligned as an offset from null would be, or no register was null"
