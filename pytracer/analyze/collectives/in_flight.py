"""Collectives whose memory was released before they had completed."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pytracer.analyze.address_space.neighbors import covers
from pytracer.analyze.tensors.journal import lived_at
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective, Snapshot, Storage
from pytracer.decode.types.storage_table import StorageTable

_NOT_COMPLETED = ("scheduled", "started", "failed")
_BAD_ADDRESS = "Bad address"  # strerror(EFAULT): a system call was given memory that is not mapped


class FreedInFlight(msgspec.Struct, frozen=True):
    """A collective, and the storage of one of its tensors that was freed after the call and before its end."""

    collective: Collective
    storage: Storage


def freed_in_flight(snapshot: Snapshot) -> Iterator[FreedInFlight]:
    """Such collectives, the latest first. One that completed is none: its memory was free to go."""
    for item in reversed(snapshot.collectives):
        if item.state in _NOT_COMPLETED:
            for storage in _buffers(snapshot.storages, item):
                if storage.freed is not None and _went_meanwhile(storage, item):
                    yield FreedInFlight(item, storage)


def bad_address(view: ProcessView) -> FreedInFlight | None:
    """The collective behind a "Bad address" exception: the kernel got the address of memory that had been freed."""
    exception = view.exception
    if exception is None or _BAD_ADDRESS not in (exception.message or ""):
        return None
    return next(freed_in_flight(view.process.snapshot), None)


def _buffers(storages: StorageTable, item: Collective) -> Iterator[Storage]:
    """All lives of storages that the collective's tensors may have been in."""
    for addr in {item.buffer_addr, item.output_addr}:
        if addr:
            yield from (storage for storage in storages.around(addr) if covers(storage, addr))


def _went_meanwhile(storage: Storage, item: Collective) -> bool:
    """Allocated before the call, freed after it, and before its end if there was one. A call begins an epoch."""
    if item.epoch is None or not lived_at(storage, item.epoch) or storage.freed is None:
        return False
    gone = storage.freed.mono_ns
    return item.completed_ns is None or (gone is not None and gone <= item.completed_ns)
