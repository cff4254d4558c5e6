"""What guard mode adds to a finding: certainty, and a sentence of evidence."""

from __future__ import annotations

from pytracer._text import hex_addr
from pytracer.analyze.address_space.guard_pool import FOUND
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, Evidence


def guard_confidence(view: ProcessView) -> Confidence | None:
    """How sure a finding in the pool is: "certain", or "likely" when a register points into a storage that is alive.

    None for an address outside guard mode.
    """
    place, instruction = view.place, view.instruction
    if place is None or place.found != FOUND or place.storage is None:
        return None
    values = (instruction.base_value, instruction.index_value) if instruction else ()
    others = (view.space.live_around(value) for value in values if value is not None)
    return "likely" if any(item is not None and item.base != place.storage.base for item in others) else "certain"


def guard_evidence(view: ProcessView) -> Evidence | None:
    """The evidence that guard mode gives for a place."""
    place, guard = view.place, view.process.snapshot.guard
    if place is None or place.found != FOUND or place.storage is None or guard is None:
        return None
    if place.kind == "freed-storage":
        words = "guard mode: its pages were in quarantine, inaccessible since it was freed and used by nothing else"
    else:
        state = "had been freed and " if place.storage.state == "freed" else ""
        words = f"guard mode: the storage {state}lay against a page that faults; the distance is exact"
    return Evidence(
        "guard",
        words,
        base=hex_addr(place.storage.base),
        nbytes=place.storage.nbytes,
        offset_bytes=place.addr - place.storage.base,
        state=place.storage.state,
    )
