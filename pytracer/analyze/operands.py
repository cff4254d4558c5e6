"""The registers that formed the faulting address, each explained; and the storage that the access was meant for.

The storage next to an address is a guess. When the instruction added an index to a register that points into a storage
that is alive, that storage was meant, however far the address is from it.
"""

from __future__ import annotations

from dataclasses import replace

from pytracer.analyze.guard import FOUND
from pytracer.analyze.instruction import Instruction
from pytracer.analyze.naming import names_of_storage
from pytracer.analyze.neighbors import covers, distance_to, is_near
from pytracer.analyze.place import Place
from pytracer.decode.snapshot import Snapshot, Storage

_LARGEST_ACCESS_BYTES = 64
_OUTSIDE = ("unmapped", "past-storage", "before-storage", "freed-storage", "heap", "none")


def aimed_at(snapshot: Snapshot, place: Place | None, instruction: Instruction | None) -> Place | None:
    """The place, told from the storage that a register of the faulting instruction points into, if there is just one.

    Args:
        snapshot: The process.
        place: What the address was by itself.
        instruction: The faulting instruction.
    """
    if place is None or instruction is None or instruction.addr is None or place.kind not in _OUTSIDE:
        return place
    if not 0 <= place.addr - instruction.addr < _LARGEST_ACCESS_BYTES:
        return place
    aimed = [
        (name, storage)
        for name, value in ((instruction.base, instruction.base_value), (instruction.index, instruction.index_value))
        if name is not None and value is not None and (storage := live_around(snapshot, value)) is not None
    ]
    if len(aimed) != 1 or covers(aimed[0][1], place.addr):
        return place
    if place.kind == "freed-storage" and instruction.scale == 1 and not is_near(aimed[0][1], place.addr):
        return place  # base and index may be a pointer and the difference to another pointer, to what was freed
    name, storage = aimed[0]
    if place.found == FOUND and place.storage is not None and place.storage.base == storage.base:
        return replace(place, register=name)
    bucket, names = names_of_storage(snapshot, storage, storage.base)
    return replace(
        place,
        kind="before-storage" if place.addr < storage.base else "past-storage",
        storage=storage,
        offset_bytes=place.addr - storage.base,
        distance_bytes=distance_to(storage, place.addr),
        found="register",
        bucket=bucket,
        names=names,
        earlier=(),
        register=name,
    )


def live_around(snapshot: Snapshot, addr: int) -> Storage | None:
    """The live storage that an address lies in."""
    return next((item for item in snapshot.storages if item.state == "live" and covers(item, addr)), None)
