"""The registers that formed the faulting address, each explained; and the storage that the access was meant for.

The storage next to an address is a guess. When the instruction added an index to a register that points into a storage
that is alive, that storage was meant, however far the address is from it.
"""

from __future__ import annotations

from dataclasses import replace

from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.guard_pool import FOUND
from pytracer.analyze.address_space.lookup import AddressSpace
from pytracer.analyze.address_space.neighbors import covers, distance_to, is_near
from pytracer.analyze.platform.instruction import Instruction
from pytracer.decode.types.snapshot import Storage

_LARGEST_ACCESS_BYTES = 64
_OUTSIDE = ("unmapped", "past-storage", "before-storage", "freed-storage", "heap", "none")


def aimed_at(space: AddressSpace, place: Place | None, instruction: Instruction | None) -> Place | None:
    """The address relative to the storage that one register of the faulting instruction points into.

    Args:
        space: The process.
        place: What the address was by itself.
        instruction: The faulting instruction.
    """
    if place is None or instruction is None or instruction.addr is None or place.kind not in _OUTSIDE:
        return place
    if not 0 <= place.addr - instruction.addr < _LARGEST_ACCESS_BYTES:
        return place
    older = _older_life(space, place, instruction)
    if older is not None:
        return _told_by(space, place, "freed-storage", older, instruction.base)
    aimed = [
        (name, storage)
        for name, value in ((instruction.base, instruction.base_value), (instruction.index, instruction.index_value))
        if name is not None and value is not None and (storage := space.live_around(value)) is not None
    ]
    if len(aimed) != 1 or covers(aimed[0][1], place.addr):
        return place
    if place.kind == "freed-storage" and instruction.scale == 1 and not is_near(aimed[0][1], place.addr):
        return place  # base and index may be a pointer and the difference to another pointer, to what was freed
    name, storage = aimed[0]
    if place.found == FOUND and place.storage is not None and place.storage.base == storage.base:
        return replace(place, register=name)
    return _told_by(space, place, "before-storage" if place.addr < storage.base else "past-storage", storage, name)


def _older_life(space: AddressSpace, place: Place, instruction: Instruction) -> Storage | None:
    """The freed storage whose first byte the base register still held, if the memory had another owner since."""
    base = instruction.base_value
    if place.kind != "freed-storage" or place.storage is None or place.found == FOUND or instruction.index is None:
        return None
    if base == place.storage.base:
        return None
    return next((item for item in space.neighbors.before(place.addr, place.storage) if item.base == base), None)


def _told_by(space: AddressSpace, place: Place, kind: str, storage: Storage, register: str | None) -> Place:
    """The place, seen from a storage that a register pointed into."""
    inside = covers(storage, place.addr)
    bucket, names = space.uses.names_of(storage, place.addr if inside else storage.base)
    return replace(
        place,
        kind=kind,
        storage=storage,
        offset_bytes=place.addr - storage.base,
        distance_bytes=distance_to(storage, place.addr),
        found="register",
        bucket=bucket,
        names=names,
        earlier=(),
        register=register,
    )
