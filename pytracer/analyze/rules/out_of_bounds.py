"""out-of-bounds: an access before or past a live storage.

What: the fault address lies in no storage and no mapping, a short way before or behind a live storage.

Why it happens: native code computed an index or a length from wrong sizes, strides or dtypes; torch itself checks
indices and raises IndexError.

What to do: compare the sizes and the dtype that the native code assumes with those of the named tensor.

How it can be wrong: the nearest storage is a guess. Only accesses that leave mapped memory fault, so that an
overrun of fewer bytes than a page usually goes unnoticed, and the storage that was overrun may be another one in
the same pages. Below `--guard` each storage has pages of its own and the distance is exact.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._words import size_words
from pytracer.analyze.guard_report import guard_confidence, guard_words
from pytracer.analyze.jumps import wild_jump
from pytracer.analyze.memory_fault import MemoryFaultRule
from pytracer.analyze.view import (
    Draft,
    Outcome,
    ProcessView,
    cannot_decide,
    draft,
    not_found,
    subject_words,
)
from pytracer.analyze.wording import (
    access_verb,
    bucket_words,
    collective_evidence,
    fault_evidence,
    in_function,
    origin_words,
    python_evidence,
    storage_words,
)

PAGE_BYTES = 4096


class OutOfBounds(MemoryFaultRule):
    """Fires when the address is in nothing, close to a live storage."""

    id = "out-of-bounds"
    needs = ("crash", "storages")

    def applies(self, view: ProcessView) -> bool:
        """See MemoryFaultRule."""
        beside = view.place is not None and view.place.kind in ("past-storage", "before-storage")
        return beside and wild_jump(view) is None

    def explain(self, views: Sequence[ProcessView]) -> Draft:
        """See MemoryFaultRule."""
        view = views[0]
        storage = view.storage
        return draft(
            self.id,
            "out-of-bounds",
            _confidence(view),
            views,
            f"{subject_words(views)} {access_verb(view)} out of bounds: {_where(view)}{in_function(view)}.",
            [
                fault_evidence(view),
                storage_words(view),
                guard_words(view),
                bucket_words(view),
                origin_words("allocated", storage.allocated if storage else None),
                python_evidence(view),
                collective_evidence(views),
            ],
            "Compare the sizes, strides and dtype that the native code assumes with those of this tensor.",
            [] if guard_words(view) else ["proof that this storage, and not another one nearby, was meant"],
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> Outcome:
        """See MemoryFaultRule."""
        if not any(view.process.snapshot.storages for view in faults):
            return cannot_decide("no storages were recorded")
        return not_found("no fault address lay close to a live storage")


def _confidence(view: ProcessView) -> str:
    """Likely when the very next page was touched or a register still points into the storage."""
    place, instruction = view.place, view.instruction
    exact = guard_confidence(view)
    if exact is not None:
        return exact
    if place is None or place.storage is None:
        return "possible"
    start, end = place.storage.base, place.storage.base + place.storage.nbytes
    values = (instruction.base_value, instruction.index_value) if instruction else ()
    if any(value is not None and start <= value <= end for value in values):
        return "likely"
    return "likely" if (place.distance_bytes or 0) <= PAGE_BYTES else "possible"


def _where(view: ProcessView) -> str:
    place = view.place
    if place is None or place.storage is None:
        return "next to a storage"
    side = "before" if place.kind == "before-storage" else "past the end of"
    name = place.names[0] if place.names else f"a storage of {size_words(place.storage.nbytes)}"
    return f"{place.distance_bytes} bytes {side} {name}"
