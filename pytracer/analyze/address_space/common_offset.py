"""A pointer that had left its storage, known by the others: a worker's part of a loop is as far inside each tensor.

`p[i] -= lr * grad[i]; buffer[i] = ...` in a thread that begins at element n: the pointers into all of these are n
elements from the first byte. Where one of them has fewer, its pointer lies in no storage, or in one that it has nothing
to do with.
"""

from __future__ import annotations

from collections import defaultdict

from pytracer.analyze.address_space.address_info import Formation
from pytracer.analyze.address_space.lookup import AddressSpace
from pytracer.analyze.address_space.neighbors import covers
from pytracer.analyze.address_space.referrers import data_registers
from pytracer.analyze.platform.instruction import Instruction, signed
from pytracer.decode.types.snapshot import Storage

_LEAST_BYTES = 1 << 12
_LEAST_OTHERS = 2  # of one alone the offset may be any


def by_common_offset(space: AddressSpace, addr: int, instruction: Instruction | None) -> Formation | None:
    """The storage that the pointer of the instruction had left; None where fewer than two others show how far.

    Args:
        space: The process.
        addr: The fault address, which lies in no live storage.
        instruction: The faulting one.
    """
    crash, base = space.snapshot.crash, instruction.base_value if instruction is not None else None
    if crash is None or instruction is None or base is None or instruction.base is None:
        return None
    around = space.live_around(base)
    others: dict[int, dict[int, Storage]] = defaultdict(dict)
    for name, value in data_registers(crash).items():
        storage = space.live_around(value) if name != instruction.base else None
        if storage is not None and value - storage.base >= _LEAST_BYTES:
            others[value - storage.base][storage.base] = storage
    if around is not None and base - around.base in others:
        return None  # as far in its own
    found = [
        (storage, distance, among)
        for distance, among in others.items()
        if len(among) >= _LEAST_OTHERS
        and (storage := space.live_around(base - distance)) is not None
        and storage.base == base - distance
        and storage.nbytes <= distance
        and not covers(storage, addr)
    ]
    if len(found) != 1:
        return None
    storage, _, among = found[0]
    scale = instruction.scale if instruction.index is not None else 1
    number, rest = divmod(signed(addr - storage.base), scale)
    scale, number = (1, signed(addr - storage.base)) if rest else (scale, number)
    twin = next(iter(among.values()))
    return Formation(storage, None, number, scale, 0, None, None, True, twin)
