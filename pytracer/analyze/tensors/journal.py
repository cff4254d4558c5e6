"""What was recorded about addresses, as evidence about storages: which of it applies to which allocation lifetime.

The allocator reuses addresses, so an entry about an address applies only to the storage that lived when it was written.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property
from typing import Generic, TypeVar

from pytracer.decode.types.snapshot import Storage
from pytracer.decode.types.storage_table import StorageTable

T = TypeVar("T")


class ByAddress(Generic[T]):
    """Items that were recorded with an address each, found by the storage that the address lies in."""

    def __init__(self, items: Iterable[tuple[int, T]]) -> None:
        """`items`: in the order of the recording."""
        self._given = items

    @cached_property
    def _index(self) -> tuple[list[T], list[int], list[int]]:
        """Items, their numbers by address, and the addresses; made for the first question: most ranks have none."""
        pairs = list(self._given)
        order = sorted(range(len(pairs)), key=lambda number: pairs[number][0])
        return [item for _, item in pairs], order, [pairs[number][0] for number in order]

    def within(self, storage: Storage) -> list[T]:
        """The items whose addresses lie in a storage, in the order of the recording; without bytes it has its base."""
        items, order, addrs = self._index
        begin = bisect_left(addrs, storage.base)
        end = bisect_left(addrs, storage.base + max(storage.nbytes, 1), begin)
        return [items[number] for number in sorted(order[begin:end])]


class Lives:
    """The allocation lifetimes of one process's storages, to which the entries of its journal apply."""

    def __init__(self, storages: StorageTable) -> None:
        self._storages = storages

    def include(self, storage: Storage, epoch: int) -> bool:
        """Whether an entry written when `epoch` began may be about this storage.

        An entry begins an epoch, so a storage allocated in that very epoch came after it - unless epochs were too
        coarse to contain an earlier one: then, and only then, the same epoch counts as well.
        """
        if lived_at(storage, epoch):
            return True
        if storage.allocated.epoch != epoch:
            return False
        return not any(lived_at(item, epoch) for item in self._storages.at(storage.base) if item != storage)


def lived_at(storage: Storage, epoch: int) -> bool:
    """Whether what was recorded when `epoch` began was recorded during the allocation lifetime of `storage`."""
    return storage.allocated.epoch < epoch and (storage.freed is None or epoch <= storage.freed.epoch)
