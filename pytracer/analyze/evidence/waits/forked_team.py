"""Whether a forked child in the OpenMP runtime waits for threads that exist in its parent only, or is at work there."""

from __future__ import annotations

from collections.abc import Iterator

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.waits.quiet import FEW, storage_epochs, timed_records
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.storages import Storage

_SHORT_NS = 2_000_000_000
_PARALLEL_BYTES = 4 << 15  # at::internal::GRAIN_SIZE (ATen/Parallel.h) elements of float32


def stands_without_team(view: ProcessView, until_ns: int) -> bool:
    """Whether it had recorded nothing for a while: no parallel region of it ends once its parent had a team.

    Records of storages are stamped coarsely: of many since the last stamp, the last may be recent. That counts as
    work where it inherited no tensor that is large enough for a parallel operator of its parent.
    """
    snapshot = view.process.snapshot
    since = snapshot.created_mono_ns
    times, untimed = storage_epochs(snapshot, until_ns)
    own = [time for time in (*timed_records(snapshot, until_ns), *times) if time >= since]
    if until_ns - max(own, default=since) < _SHORT_NS and any(time >= since for time in times):
        return False
    return untimed <= FEW or next(_inherited(view), None) is not None


def largest_inherited(view: ProcessView) -> Storage | None:
    """The largest tensor of its parent with a line of the program, of those for which an operator takes threads."""
    placed = [
        item
        for item in _inherited(view)
        if (place := item.allocated_by.place) is not None and not is_library_file(place.file)
    ]
    return max(placed, key=lambda item: item.nbytes, default=None)


def _inherited(view: ProcessView) -> Iterator[Storage]:
    """Those that were alive at the fork, and are large enough."""
    for item in view.process.snapshot.storages:
        made = item.allocated.mono_ns
        if item.nbytes >= _PARALLEL_BYTES and made is not None and made < view.process.snapshot.created_mono_ns:
            yield item
