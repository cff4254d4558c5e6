"""Journal entries as evidence about storages: which were written during which allocation lifetime.

The allocator reuses addresses, so an entry about an address applies only to the storage that lived when it was written.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytracer.decode.types.journal import Fact, P, select
from pytracer.decode.types.snapshot import Snapshot, Storage


def facts_of_life(snapshot: Snapshot, kind: type[P], storage: Storage) -> Iterator[Fact[P]]:
    """The entries of one kind that were written during the allocation lifetime of `storage`.

    An entry begins an epoch, so a storage allocated in that very epoch came after it - unless epochs were too coarse to
    contain an earlier one: then, and only then, the same epoch counts as well.
    """
    for fact in select(snapshot.facts, kind):
        if lived_at(storage, fact.epoch):
            yield fact
        elif storage.allocated.epoch == fact.epoch:
            others = [item for item in snapshot.storages.at(storage.base) if item != storage]
            if not any(lived_at(item, fact.epoch) for item in others):
                yield fact


def lived_at(storage: Storage, epoch: int) -> bool:
    """Whether an entry written when `epoch` began may be about this storage."""
    return storage.allocated.epoch < epoch and (storage.freed is None or epoch <= storage.freed.epoch)
