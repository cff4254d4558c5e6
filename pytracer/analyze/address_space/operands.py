"""The storage that an access outside of all storages was meant for.

The storage next to an address is a guess. When the instruction added an index to a register that points into a storage
that is alive, that storage was meant, however far the address is from it.
"""

from __future__ import annotations

from msgspec import structs

from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.common_offset import by_common_offset
from pytracer.analyze.address_space.formation import find_formation
from pytracer.analyze.address_space.freed_neighbor import (
    freed_neighbor,
    may_be_counted_from_array,
    may_be_counted_from_elsewhere,
)
from pytracer.analyze.address_space.guard_pool import FOUND
from pytracer.analyze.address_space.lookup import GUESSED, AddressSpace
from pytracer.analyze.address_space.neighbors import covers, is_near
from pytracer.analyze.address_space.overrun import find_overrun
from pytracer.analyze.address_space.regions import mapping_at
from pytracer.analyze.platform.instruction import Instruction, signed
from pytracer.decode.types.snapshot import Storage

COMPUTED = "computed"  # Place.found: from a sum, or from where an access that ran on had begun
ROWS = "rows"  # Place.found: by rows of the live storage before the freed block that the address lies in
_TORCH = "libtorch"
_LARGEST_ACCESS_BYTES = 64
_LARGEST_FRAME_BYTES = 1 << 20  # of a function whose stack may have overflowed
_OUTSIDE = ("unmapped", "past-storage", "before-storage", "freed-storage", "heap", "none", "non-canonical")
# What an address may be by accident that was computed from a wrong index, or reached by running on.
_ANYTHING = ("unmapped", "past-storage", "before-storage", "heap", "none", "non-canonical", "image", "file-mapping")


def aimed_at(
    space: AddressSpace, place: Place | None, instruction: Instruction | None, access: str | None
) -> Place | None:
    """The address relative to the storage that the access was meant for, if that is known.

    Args:
        space: The process.
        place: What the address was by itself.
        instruction: The faulting instruction.
        access: "read", "write", "execute", or None when not known.
    """
    if place is None or access == "execute":
        return place
    left = _by_others(space, place, instruction)
    if left is not None:
        return left
    told = _by_operand(space, place, instruction)
    if told is place and _was_meant_elsewhere(space, place, instruction):
        told = place = space.without_storage(place)
    if place.kind == "stack-guard" and not _near_stack_pointer(space, place.addr):
        return _by_overrun(space, place, access, instruction) or place  # it lies above what ran on, as any mapping may
    if told is place and place.kind == "freed-storage" and place.found != FOUND:
        return _by_rows(space, place) or _by_running_in(space, place, access, instruction) or place
    if told is not place or place.kind not in _ANYTHING or place.found == FOUND:
        return told
    return _by_sum(space, place) or _by_overrun(space, place, access, instruction) or place


def _near_stack_pointer(space: AddressSpace, addr: int) -> bool:
    crash = space.snapshot.crash
    return crash is None or abs(crash.sp - addr) < _LARGEST_FRAME_BYTES


def _by_operand(space: AddressSpace, place: Place, instruction: Instruction | None) -> Place:
    """By the register of the instruction that points into a live storage, if there is just one."""
    if instruction is None or instruction.addr is None or place.kind not in _OUTSIDE:
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
        return structs.replace(place, register=name)
    return _told_by(space, place, _side(storage, place.addr), storage, name)


def _by_others(space: AddressSpace, place: Place, instruction: Instruction | None) -> Place | None:
    """By how far other pointers were in their storages: that of the instruction had left its own."""
    found = by_common_offset(space, place.addr, instruction) if place.kind in _OUTSIDE else None
    if found is None or place.found == FOUND:
        return None
    told = _told_by(space, place, _side(found.storage, place.addr), found.storage, None)
    return structs.replace(told, found=COMPUTED, register=None, formation=found)


def _was_meant_elsewhere(space: AddressSpace, place: Place, instruction: Instruction | None) -> bool:
    """Whether the storage is a guess or freed, and the access was counted from other memory: of malloc, say.

    What was mapped into the hole of a freed storage is other memory, too.
    """
    if place.found == GUESSED and place.kind in ("past-storage", "before-storage"):
        return _counts_from_elsewhere(space, place, instruction)
    if place.found == FOUND or place.kind != "freed-storage":
        return False
    if may_be_counted_from_array(space, place):
        return True
    scaled = instruction is not None and instruction.scale > 1  # else the index may be the pointer
    return scaled and _counts_from_elsewhere(space, place, instruction)


def _counts_from_elsewhere(space: AddressSpace, place: Place, instruction: Instruction | None) -> bool:
    """Whether the instruction adds an index to a pointer into another mapping, which may be read."""
    crash = space.snapshot.crash
    if crash is None or instruction is None or instruction.base_value is None or place.storage is None:
        return False
    counted_from = mapping_at(crash.mappings, instruction.base_value) if instruction.index_value else None
    if counted_from is None or "r" not in counted_from.permissions:
        return False
    return not counted_from.start <= place.storage.base < counted_from.end


def _by_sum(space: AddressSpace, place: Place) -> Place | None:
    """By the sum that the address is: it was computed before the instruction."""
    crash = space.snapshot.crash
    found = find_formation(space, crash, place.addr) if crash is not None else None
    if found is None:
        return None
    told = _told_by(space, place, _side(found.storage, place.addr), found.storage, found.pointer)
    return structs.replace(told, found=COMPUTED, register=None, formation=found)


def _by_rows(space: AddressSpace, place: Place) -> Place | None:
    """By the rows of the live storage before it, where they lead on into the freed block."""
    found = freed_neighbor(space, place)
    if found is None or found.step_bytes is None:
        return None
    return structs.replace(_told_by(space, place, "past-storage", found.live, None), found=ROWS)


def _by_running_in(
    space: AddressSpace, place: Place, access: str | None, instruction: Instruction | None
) -> Place | None:
    """By where an operator of torch began to run on: a freed block may lie across the end of the heap, which shrinks.

    torch holds what its operators work on, and nothing had the address of the freed block.
    """
    crash, freed = space.snapshot.crash, place.storage
    if crash is None or freed is None or not crash.native_stack or not may_be_counted_from_elsewhere(space, place):
        return None
    in_torch = _TORCH in (crash.native_stack[0].image or "").rpartition("/")[2]
    told = _by_overrun(space, place, access, instruction) if in_torch else None
    found = told.overrun if told is not None else None
    if found is None or found.storage is None or found.downwards or not found.start < freed.base < place.addr:
        return None
    return told


def _by_overrun(space: AddressSpace, place: Place, access: str | None, instruction: Instruction | None) -> Place | None:
    """By where an access that ran on had begun."""
    crash = space.snapshot.crash
    found = find_overrun(space, crash, place.addr, access, instruction) if crash is not None else None
    if found is None:
        return None
    kind = "before-storage" if found.downwards else "past-storage"
    if found.storage is None:
        return structs.replace(place, kind=kind, found=COMPUTED, overrun=found)
    told = _told_by(space, place, kind, found.storage, found.register)
    return structs.replace(told, found=COMPUTED, register=None, overrun=found)


def _side(storage: Storage, addr: int) -> str:
    """A non-canonical address is a sum that overflowed: its sign decides."""
    return "before-storage" if signed(addr - storage.base) < 0 else "past-storage"


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
    return structs.replace(
        place,
        kind=kind,
        storage=storage,
        offset_bytes=signed(place.addr - storage.base),
        distance_bytes=_distance(storage, place.addr),
        found="register",
        bucket=bucket,
        names=names,
        earlier=(),
        register=register,
    )


def _distance(storage: Storage, addr: int) -> int:
    """As `distance_to`, also for addresses that the sum of a wrong index left outside of the address space."""
    offset = signed(addr - storage.base)
    return -offset if offset < 0 else max(offset - storage.nbytes + 1, 0)
