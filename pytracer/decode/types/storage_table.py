"""All storages of a process as a sequence that costs 20 bytes for each: they are decoded on demand.

A process may have millions of them, and most questions are about those around one address. These are found by an index
over the addresses, built for the first such question.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapify, heappop
from typing import overload

from pytracer.decode.types.storages import Storage

_BLOCK = 256  # entries of the index with one upper bound
_MOST_FOUND = 4096  # storages at one address; a real thread remembers 1,024
_MOST_STEPS = 1 << 16  # over the index, for one question
_BESIDE = 8


@dataclass
class Part:
    """Storages of one region: where they are, and how the one in a slot is decoded."""

    decode: Callable[[int], Storage]
    bases: array[int] = field(default_factory=lambda: array("Q"))
    sizes: array[int] = field(default_factory=lambda: array("Q"))
    slots: array[int] = field(default_factory=lambda: array("I"))
    live: bytearray = field(default_factory=bytearray)
    on_cpu: bool = True

    @classmethod
    def of(cls, items: Sequence[Storage], *, on_cpu: bool = True) -> Part:
        """Storages that are decoded already."""
        part = cls(items.__getitem__, on_cpu=on_cpu)
        for slot, item in enumerate(items):
            part.bases.append(item.base)
            part.sizes.append(item.nbytes)
            part.slots.append(slot)
            part.live.append(item.state == "live")
        return part


class StorageTable(Sequence[Storage]):
    """Storages in the order of the parts."""

    def __init__(self, *parts: Part) -> None:
        self._parts = parts
        self._starts = [sum(len(part.bases) for part in parts[:number]) for number in range(len(parts) + 1)]

    @classmethod
    def of(cls, *items: Storage) -> StorageTable:
        """A table of these."""
        return cls(Part.of(items))

    def with_more(self, items: Sequence[Storage]) -> StorageTable:
        """The table, and these behind."""
        return StorageTable(*self._parts, Part.of(items))

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, index: int) -> Storage: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Storage]: ...
    def __getitem__(self, index: int | slice) -> Storage | Sequence[Storage]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        index = index + len(self) if index < 0 else index
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = bisect_right(self._starts, index) - 1
        part = self._parts[number]
        return part.decode(part.slots[index - self._starts[number]])

    def __iter__(self) -> Iterator[Storage]:
        for part in self._parts:
            yield from map(part.decode, part.slots)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sequence)
            and len(self) == len(other)
            and all(a == b for a, b in zip(self, other, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]

    def __deepcopy__(self, memo: object) -> StorageTable:
        return self

    def count(self, value: object) -> int:
        """As of any sequence; of a state, without decoding."""
        if value in ("live", "freed"):
            live = sum(sum(part.live) for part in self._parts)
            return live if value == "live" else len(self) - live
        return sum(item == value for item in self)

    def live_bytes(self, *, on_cpu: bool) -> int:
        """Bytes of the live ones on the CPU, or on devices."""
        return sum(
            sum(size for size, live in zip(part.sizes, part.live, strict=True) if live)
            for part in self._parts
            if part.on_cpu == on_cpu
        )

    def by_size(self) -> Iterator[Storage]:
        """Those on the CPU, of both states, the largest first."""
        sizes = [
            (-size, number, slot)
            for number, part in enumerate(self._parts)
            if part.on_cpu
            for size, slot in zip(part.sizes, part.slots, strict=True)
        ]
        heapify(sizes)
        while sizes:
            _, number, slot = heappop(sizes)
            yield self._parts[number].decode(slot)

    def freed_of(self, sizes: Collection[int]) -> Iterator[Storage]:
        """Those on the CPU that were freed and had one of these sizes; no other one is decoded."""
        for part in self._parts:
            for size, live, slot in zip(part.sizes, part.live, part.slots, strict=True):
                if part.on_cpu and not live and size in sizes:
                    yield part.decode(slot)

    def on_devices(self) -> Iterator[Storage]:
        """Blocks of devices' allocators."""
        return (item for part in self._parts if not part.on_cpu for item in map(part.decode, part.slots))

    def around(self, addr: int) -> list[Storage]:
        """Those that cover an address or end right before it, of both states, in the order of the table."""
        index = self._index
        at, found, steps = bisect_right(index.bases, addr), list[int](), 0
        block = (at - 1) // _BLOCK if at else -1
        while block >= 0 and steps < _MOST_STEPS and len(found) < _MOST_FOUND:
            steps += 1
            if index.tops[block] >= addr:
                begin, end = block * _BLOCK, min((block + 1) * _BLOCK, at)
                found += [n for n in range(begin, end) if index.bases[n] + index.size_of(n) >= addr]
                steps += end - begin
            block -= 1
        return self._decoded(index.order[n] for n in found)

    def at(self, base: int) -> list[Storage]:
        """All storages that began at an address, in the order of the table."""
        index = self._index
        begin = bisect_left(index.bases, base)
        end = min(bisect_right(index.bases, base), begin + _MOST_FOUND)
        return self._decoded(index.order[begin:end])

    def live_beside(self, addr: int) -> list[Storage]:
        """The next few live ones that begin below an address, and above it."""
        index = self._index
        at = bisect_right(index.bases, addr)
        found = []
        for way in (range(at - 1, max(-1, at - 1 - _MOST_STEPS), -1), range(at, min(len(self), at + _MOST_STEPS))):
            live = (index.order[n] for n in way if self._is_live(index.order[n]))
            found += [number for number, _ in zip(live, range(_BESIDE), strict=False)]
        return self._decoded(found)

    def beside(self, addr: int, most: int) -> list[Storage]:
        """The `most` that begin next below an address, and as many above it, of both states."""
        index = self._index
        at = bisect_right(index.bases, addr)
        return self._decoded(index.order[max(0, at - most) : at + most])

    def _is_live(self, number: int) -> bool:
        part = bisect_right(self._starts, number) - 1
        return bool(self._parts[part].live[number - self._starts[part]])

    def _decoded(self, numbers: Iterable[int]) -> list[Storage]:
        return [self[number] for number in sorted(numbers)]

    @cached_property
    def _index(self) -> _Index:
        return _Index(self._parts)


class _Index:
    """The storages by their addresses; `order` has their numbers, `tops` the highest end of each block of entries."""

    def __init__(self, parts: Sequence[Part]) -> None:
        bases, self._sizes = array("Q"), array("Q")
        for part in parts:
            bases += part.bases
            self._sizes += part.sizes
        self.order = array("I", sorted(range(len(bases)), key=bases.__getitem__))
        self.bases = array("Q", map(bases.__getitem__, self.order))
        ends = [base + self._sizes[number] for base, number in zip(self.bases, self.order, strict=True)]
        self.tops = [max(ends[at : at + _BLOCK]) for at in range(0, len(ends), _BLOCK)]

    def size_of(self, entry: int) -> int:
        """Bytes of the storage that an entry is about."""
        return self._sizes[self.order[entry]]
