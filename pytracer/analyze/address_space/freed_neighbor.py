"""A freed block that an access ended in: meant, or met by one that ran past the end of a live storage.

That an address lies in a freed block says where an access ended, not where it was counted from. Who uses memory after
it was freed has its address: of its first byte, as a rule.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.lookup import AddressSpace
from pytracer.analyze.address_space.neighbors import covers
from pytracer.analyze.address_space.referrers import (
    STATE_REGISTERS,
    data_registers,
    is_stored,
    memory_words,
    stack_words,
)
from pytracer.decode.types.snapshot import Crash, Storage

_GAP_BYTES = 4096  # headers of the heap and what alignment leaves
_LEAST_STEP_BYTES = 4096  # any address of a vector instruction is a multiple of a smaller one
_FIRST_BYTES = 64  # of a block: what one access of its first element touches
_LEAST_STEPS = 8  # fewer are a number that any stack holds


class FreedNeighbor(msgspec.Struct, frozen=True):
    """A live storage of which a pointer was held, and nothing of the first byte of the freed block.

    Either `live` ends right before the freed block, and its first byte was held; or `steps` was held as well.
    `step_bytes`: a pointer into `live` was so far from its start, and one into the freed block, or the address itself,
    `steps` times as far: rows or planes of the live one. None where nothing shows that.
    """

    live: Storage
    step_bytes: int | None
    steps: int


def may_be_counted_from_elsewhere(space: AddressSpace, place: Place) -> bool:
    """Whether a pointer into a live storage was held, and nothing that had the address of the freed one.

    The freed storage's address is held by an access at its first byte, by a word near registers or on the stack, and
    by a variable. So is one inside of it by a variable of C, whose memory is not that of the stack: words there are
    also what earlier calls left, and what was computed.
    """
    crash, storage = space.snapshot.crash, place.storage
    if crash is None or storage is None or _is_held(crash, storage, place.addr):
        return False
    return any(space.live_around(value) is not None for value in _held(crash))


def may_be_counted_from_array(space: AddressSpace, place: Place) -> bool:
    """Whether a register had the first byte of an array that lies where the freed storage was, and nothing that one's.

    What a large block leaves is mapped anew in part: an index that leads out of the array ends in what is left.
    """
    crash, storage = space.snapshot.crash, place.storage
    if crash is None or storage is None or _is_held(crash, storage, place.addr):
        return False
    registers = set(data_registers(crash).values())
    inside = (item for item in crash.arrays if covers(storage, item.data) and item.data in registers)
    return any((span := item.extent) is not None and not span[0] <= place.addr < span[1] for item in inside)


def may_be_counted_from_hole(space: AddressSpace, place: Place) -> bool:
    """Whether part of the freed storage's memory is mapped again, and nothing had its address.

    What lies there now may be what the access was counted from: a block of malloc(), or what is left of the heap.
    """
    crash, storage = space.snapshot.crash, place.storage
    if crash is None or storage is None or _is_held(crash, storage, place.addr):
        return False
    end = storage.base + storage.nbytes
    return any(item.start < end and storage.base < item.end for item in crash.mappings)


def _is_held(crash: Crash, storage: Storage, addr: int) -> bool:
    """Whether anything had the address of the freed storage, by which it may have been used."""
    first = range(storage.base, storage.base + _FIRST_BYTES)
    return (
        any(item in first for item in (addr, *(other.fault_addr for other in crash.also_crashed)))
        or storage.base in _held(crash)
        or any(word == storage.base for _, word in memory_words(crash))
        or any(holder.base == storage.base for holder in crash.holders)
        or is_stored(crash, addr)
    )


def freed_neighbor(space: AddressSpace, place: Place) -> FreedNeighbor | None:
    """None where the start of the freed block was at hand, or nothing leads there from one live storage."""
    crash, freed = space.snapshot.crash, place.storage
    if crash is None or freed is None or place.kind != "freed-storage":
        return None
    held = set(_held(crash))
    if freed.base in held:
        return None
    before = {storage for value in held if (storage := space.live_around(value)) is not None and storage.base == value}
    close = [item for item in before if 0 <= freed.base - (item.base + item.nbytes) < _GAP_BYTES]
    if len(close) == 1:
        return next(_steps(close[0], held, place), FreedNeighbor(close[0], None, 0))
    return _farther(space, held, place)


def _farther(space: AddressSpace, held: set[int], place: Place) -> FreedNeighbor | None:
    """Rows of a live storage that is not beside the freed one: their number must have been held as well.

    Storages begin at like offsets in their pages, so that rows of a power of two would lead anywhere.
    """
    inside = {storage for value in held if (storage := space.live_around(value)) is not None}
    found = {
        item
        for storage in inside
        for item in _steps(storage, held, place)
        if item.step_bytes and item.step_bytes & (item.step_bytes - 1)
        if item.steps >= _LEAST_STEPS and item.steps in held and item.steps > storage.nbytes // item.step_bytes
    }
    return found.pop() if len(found) == 1 else None


def _steps(live: Storage, held: set[int], place: Place) -> Iterator[FreedNeighbor]:
    """Rows of the live storage, a second one of which was held, that lead to the address or into the freed block."""
    freed = place.storage
    reached = [place.addr, *(value for value in held if freed is not None and covers(freed, value))]
    for step in sorted(value - live.base for value in held if live.base < value and covers(live, value)):
        for value in reached:
            steps, rest = divmod(value - live.base, step)
            if step >= _LEAST_STEP_BYTES and rest == 0 and live.nbytes % step == 0:
                yield FreedNeighbor(live, step, steps)


def _held(crash: Crash) -> Iterator[int]:
    """What registers and the top of the stack held."""
    yield from (value for name, value in crash.registers.items() if name not in STATE_REGISTERS and name != "cr2")
    yield from (value for _, value in stack_words(crash))
