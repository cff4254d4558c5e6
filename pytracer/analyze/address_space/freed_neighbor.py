"""A freed block behind a live storage: an access that ran past the end of the live one meets it first on the heap.

That an address lies in a freed block says where an access ended, not where it was counted from. Who uses memory after
it was freed has its address: of its first byte, as a rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.lookup import AddressSpace
from pytracer.analyze.address_space.neighbors import covers
from pytracer.analyze.address_space.referrers import STATE_REGISTERS, stack_words
from pytracer.decode.types.snapshot import Crash, Storage

_GAP_BYTES = 4096  # headers of the heap and what alignment leaves
_LEAST_STEP_BYTES = 4096  # any address of a vector instruction is a multiple of a smaller one


@dataclass(frozen=True)
class FreedNeighbor:
    """`live` ends right before the freed block, and its first byte was held, which that of the block was not.

    `step_bytes`: a pointer into `live` was so far from its start, and one into the freed block, or the address itself,
    `steps` times as far: rows or planes of the live one. None where nothing shows that.
    """

    live: Storage
    step_bytes: int | None
    steps: int


def freed_neighbor(space: AddressSpace, place: Place) -> FreedNeighbor | None:
    """None where the start of the freed block was at hand, or no live storage ends right before it."""
    crash, freed = space.snapshot.crash, place.storage
    if crash is None or freed is None or place.kind != "freed-storage":
        return None
    held = set(_held(crash))
    if freed.base in held:
        return None
    before = {storage for value in held if (storage := space.live_around(value)) is not None and storage.base == value}
    close = [item for item in before if 0 <= freed.base - (item.base + item.nbytes) < _GAP_BYTES]
    if len(close) != 1:
        return None
    live = close[0]
    inside = sorted(value - live.base for value in held if live.base < value and covers(live, value))
    reached = [place.addr, *(value for value in held if covers(freed, value))]
    for step in inside:
        for value in reached:
            steps, rest = divmod(value - live.base, step)
            if step >= _LEAST_STEP_BYTES and rest == 0 and live.nbytes % step == 0:
                return FreedNeighbor(live, step, steps)
    return FreedNeighbor(live, None, 0)


def _held(crash: Crash) -> Iterator[int]:
    """What registers and the top of the stack held, and a register that the memory near it is known by."""
    yield from (value for name, value in crash.registers.items() if name not in STATE_REGISTERS and name != "cr2")
    yield from (value for _, value in stack_words(crash))
