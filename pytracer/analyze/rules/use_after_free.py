"""use-after-free: memory of a storage was used after the storage had been released.

What: the fault address lies in a storage that was freed, and in no live one; the memory has been given back to the
system, so that the access faulted.

Why it happens: native code, or a NumPy or ctypes view, kept an address without keeping the tensor. DDP's gradient
buckets are a trap of this kind: DDP rebuilds them once, at the start of the second forward, and releases the first
ones.

What to do: keep a reference to the tensor for as long as its memory is used, or take the address again each time.

How it can be wrong: memory that something else mapped into the hole and unmapped again would be blamed on the
storage that was there before. Small storages are usually not unmapped when freed, so a use of them after free reads
silently. Both ends below `--guard`, where a freed storage stays inaccessible and its memory is used by nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._words import time_words
from pytracer.analyze.guard import FOUND
from pytracer.analyze.guard_report import guard_confidence, guard_words
from pytracer.analyze.memory_fault import MemoryFaultRule
from pytracer.analyze.report import Origin
from pytracer.analyze.view import (
    Draft,
    Outcome,
    ProcessView,
    cannot_decide,
    draft,
    not_found,
    place_words,
    subject_words,
)
from pytracer.analyze.wording import (
    access_verb,
    bucket_words,
    collective_evidence,
    earlier_words,
    fault_evidence,
    origin_words,
    python_evidence,
    storage_words,
)


class UseAfterFree(MemoryFaultRule):
    """Fires when the most recent storage around the address was freed and none is live there."""

    id = "use-after-free"
    needs = ("crash", "storages")

    def applies(self, view: ProcessView) -> bool:
        """See MemoryFaultRule."""
        return view.place is not None and view.place.kind == "freed-storage"

    def explain(self, views: Sequence[ProcessView]) -> Draft:
        """See MemoryFaultRule."""
        view = views[0]
        storage = view.storage
        return draft(
            self.id,
            "use-after-free",
            _confidence(view),
            views,
            f"{subject_words(views)} {access_verb(view)} freed memory: {_where(view)}, {_released(view)}.",
            [
                fault_evidence(view),
                storage_words(view),
                guard_words(view),
                bucket_words(view),
                earlier_words(view),
                origin_words("allocated", storage.allocated if storage else None),
                origin_words("freed", storage.freed if storage else None),
                _rebuilt(view),
                python_evidence(view),
                collective_evidence(views),
            ],
            _advice(view),
            [_mapped(view), _overwritten(view)],
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> Outcome:
        """See MemoryFaultRule."""
        if not any(view.process.snapshot.storages for view in faults):
            return cannot_decide("no storages were recorded")
        return not_found("no fault address lay in a freed storage that is still remembered")


def _confidence(view: ProcessView) -> str:
    """Certain only when the handler saw it, and the address was in no mapping at all."""
    place = view.place
    exact = guard_confidence(view)
    if exact is not None:
        return exact
    if place is None or place.mapping is not None:
        return "possible"
    unmapped = view.report.signal is not None and view.report.signal.code == "SEGV_MAPERR"
    return "certain" if unmapped and place.found == "exact" else "likely"


def _where(view: ProcessView) -> str:
    place = view.place
    if place is None or place.storage is None:
        return "a freed storage"
    if place.bucket is not None:
        return f"{place.bucket.offset_bytes} bytes into {place.bucket.name}"
    if place.names:
        return f"{place.offset_bytes} bytes into the storage of {place.names[0]}"
    return f"{place.offset_bytes} bytes into a storage of {place.storage.nbytes} bytes"


def _freed(view: ProcessView) -> Origin | None:
    storage = view.storage
    return storage.freed if storage else None


def _released(view: ProcessView) -> str:
    bucket = view.place.bucket if view.place else None
    if bucket is not None and bucket.rebuilt:
        return "which DDP released when it rebuilt its buckets"
    freed = _freed(view)
    place = (freed.caller or freed.python) if freed else None
    return f"which was released at {place_words(place)}" if place else "which had been released"


def _rebuilt(view: ProcessView) -> str | None:
    bucket = view.place.bucket if view.place else None
    if bucket is None or not bucket.rebuilt:
        return None
    return (
        f"DDP rebuilt the buckets of {bucket.module} at the start of the second forward: "
        f"a layout newer than generation {bucket.generation} was recorded"
    )


def _mapped(view: ProcessView) -> str | None:
    place = view.place
    if place is None or place.mapping is None or place.found == FOUND:
        return None
    return f"proof that the memory was given back: the address lies in a mapping ({place.mapping.permissions})"


def _overwritten(view: ProcessView) -> str | None:
    storage = view.place.storage if view.place else None
    if storage is None or storage.freed_by is not None:
        return None
    return "where it was allocated and freed: newer frees have overwritten the record of this storage"


def _advice(view: ProcessView) -> str:
    bucket = view.place.bucket if view.place else None
    frame = view.python_frame
    user = place_words(frame) if frame else "The native code"
    if bucket is not None and bucket.rebuilt:
        return (
            f"{user} used an address from before the second forward: take the bucket's address in every iteration, "
            "or from the GradBucket of a DDP communication hook."
        )
    freed = _freed(view)
    ended = view.report.ended
    age = ""
    if freed is not None and freed.time is not None and ended is not None and ended > freed.time:
        age = f", {time_words(ended - freed.time)} after it was freed"
    return f"{user} used memory of a tensor that nobody held any more{age}: keep a reference to it for as long."
