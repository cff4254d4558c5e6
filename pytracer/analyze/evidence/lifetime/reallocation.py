"""Memory that other threads freed and allocated again between a fault and the crash handler's look at the storages."""

from __future__ import annotations

import msgspec

from pytracer.analyze.address_space.lookup import SEGV_MAPERR
from pytracer.analyze.tensors.origins import is_borrowed
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Storage


class Reallocation(msgspec.Struct, frozen=True):
    """The storage that was used, and the one that has its memory since."""

    used: Storage
    since: Storage


def reallocation_of(view: ProcessView) -> Reallocation | None:
    """The two storages, where the fault shows that the memory was gone and neither of its ends is the crashed thread's.

    The kernel's SEGV_MAPERR is about the moment of the access; a live storage of torch's own allocator has memory. The
    map of memory is read later still: the race may have gone on.
    """
    place, crash = view.place, view.crash
    if place is None or crash is None or place.kind != "in-storage" or place.storage is None:
        return None
    if crash.code != SEGV_MAPERR or (place.mapping is not None and place.mapping.permissions.startswith("---")):
        return None
    since = place.storage
    used = next(iter(view.space.neighbors.before(place.addr, since)), None)
    if used is None or used.state != "freed" or is_borrowed(since) or is_borrowed(used):
        return None
    others = (used.freed_thread, since.allocated_thread)
    return None if None in others or crash.tid in others else Reallocation(used, since)
