"""Journal entries as evidence about storages: which were written during which life, and values from them.

The allocator hands the same address out again and again, so what an entry says about an address counts only for the
life of the storage during which it was written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytracer.decode.types.snapshot import Fact, Snapshot, Storage


def facts_of_life(snapshot: Snapshot, kind: str, storage: Storage) -> Iterator[Fact]:
    """The facts of one kind that were written during the life of `storage`.

    An entry begins an epoch, so a storage allocated in that very epoch came after it - unless epochs were too coarse to
    see an earlier one: then, and only then, the same epoch counts as well.
    """
    for fact in snapshot.facts:
        if fact.kind != kind or not isinstance(fact.data, dict):
            continue
        if lived_at(storage, fact.epoch):
            yield fact
        elif storage.allocated.epoch == fact.epoch:
            others = [item for item in snapshot.storages.at(storage.base) if item != storage]
            if not any(lived_at(item, fact.epoch) for item in others):
                yield fact


def lived_at(storage: Storage, epoch: int) -> bool:
    """Whether what was noted when `epoch` began may be about this life."""
    return storage.allocated.epoch < epoch and (storage.freed is None or epoch <= storage.freed.epoch)


def objects_in(data: Any, key: str) -> list[dict[str, Any]]:
    """A list of objects from a journal entry; whatever is damaged or missing is left out."""
    items = data.get(key) if isinstance(data, dict) else None
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def number_in(data: dict[str, Any], key: str) -> int:
    """A number from a journal entry; 0 when it is missing or damaged."""
    value = data.get(key)
    return value if isinstance(value, int) else 0
