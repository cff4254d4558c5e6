"""Bytes of a process's live CPU storages over time, as far back as the recording knows every lifetime."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from pytracer.decode.types.snapshot import Snapshot

_FREED_PER_THREAD = 1024  # lifetimes that a thread remembers; the oldest are overwritten


def storage_totals(box: Snapshot) -> Iterator[tuple[int, int]]:
    """(time, bytes) at each change, oldest first.

    It begins where the first thread has forgotten a storage that it freed: before that, the sum would be too small.
    """
    change: Counter[int] = Counter()
    freed: dict[int | None, list[int]] = defaultdict(list)
    total = 0
    for storage in box.storages:
        if storage.device != "cpu":
            continue
        if storage.allocated.mono_ns is not None:
            change[storage.allocated.mono_ns] += storage.nbytes
        else:
            total += storage.nbytes
        if storage.freed is not None and storage.freed.mono_ns is not None:
            change[storage.freed.mono_ns] -= storage.nbytes
            freed[storage.freed_thread].append(storage.freed.mono_ns)
    begins_ns = max((min(times) for times in freed.values() if len(times) >= _FREED_PER_THREAD), default=0)
    for at_ns in sorted(change):
        total += change[at_ns]
        if at_ns >= begins_ns:
            yield at_ns, total
