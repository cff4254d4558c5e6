"""What the registers of the crashed thread, and the words at the top of its stack, point at.

A register with a pointer into a tensor's storage is often more informative than the address of the fault.
"""

from __future__ import annotations

from msgspec import structs

from pytracer._text import function_words, hex_addr
from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.description import storage_phrase
from pytracer.analyze.address_space.lookup import AddressSpace
from pytracer.analyze.address_space.referrers import STATE_REGISTERS, stack_words
from pytracer.analyze.address_space.regions import NEAR_NULL_BYTES
from pytracer.analyze.parts import StorageReports
from pytracer.analyze.platform.addresses import exists
from pytracer.decode.types.snapshot import Crash, Storage
from pytracer.report import job as r

STACK_WORDS = 16
_NEAREST = ("past-storage", "before-storage")
_NOWHERE = ("null", "non-canonical", "unmapped", "reserved")
_POINTER_KINDS = {kind: kind for kind in ("stack", "stack-guard", "image", "heap", "shared-memory", "kernel-page")}
_TELLING = ("in-storage", "freed-storage", "past-storage", "image", "file-mapping", "shared-memory", "device-memory")


def explain_pointers(crash: Crash, place: Place | None, storages: StorageReports) -> list[r.Pointer]:
    """Every register, and at most `STACK_WORDS` words of the stack, that points at something known.

    Args:
        crash: The crash of the process.
        place: The fault address, already explained.
        storages: The storages of the process.
    """
    registers = [(name, value) for name, value in crash.registers.items() if name not in STATE_REGISTERS]
    words = list(stack_words(crash))
    values = {value for _, value in (*registers, *words) if _may_point(storages.space.snapshot.arch, value)}
    known: dict[int, r.Pointer] = {}
    for value in values:
        pointer = _pointer(crash, value, place, storages)
        if pointer is not None:
            known[value] = pointer
    told = [(name, value) for name, value in words if value in known and known[value].kind in _TELLING]
    named = [(name, known[value]) for name, value in (*registers, *told[:STACK_WORDS]) if value in known]
    return [_renamed(pointer, name) for name, pointer in named]


def _renamed(pointer: r.Pointer, register: str) -> r.Pointer:
    fields = {name: getattr(pointer, name) for name in pointer.__struct_fields__}
    return r.Pointer(**{**fields, "register": register})


def _may_point(arch: str, value: int) -> bool:
    return value >= NEAR_NULL_BYTES and exists(arch, value)


def _pointer(crash: Crash, value: int, fault: Place | None, storages: StorageReports) -> r.Pointer | None:
    space = storages.space
    place = fault if fault is not None and fault.addr == value else space.describe(value)
    ends = value != (fault.addr if fault else None) and place.kind in _NEAREST
    if ends and not (place.kind == "past-storage" and place.storage and _end(place.storage) == value):
        place = structs.replace(place, kind="none", storage=None, bucket=None, names=(), unit=None)
    kind, says = _words(space, crash, place)
    if says is None:
        return None
    return r.Pointer(
        addr=hex_addr(value),
        says=says,
        kind=kind,
        storage=storages.of_place(place),
        offset_bytes=place.offset_bytes if place.storage else None,
        names=list(place.names) if place.storage else None,
        found=place.found if place.storage else None,
    )


def _end(storage: Storage) -> int:
    return storage.base + storage.nbytes


def _words(space: AddressSpace, crash: Crash, place: Place) -> tuple[str, str | None]:
    """Kind and words of an address; no words when nothing is known of it."""
    phrase = storage_phrase(place, "to the start of")
    if phrase is not None:
        return place.kind, f"points {phrase}"
    region = space.regions.at(place.addr)
    if place.kind == "stack-guard" and (region is None or region.kind == "unmapped"):
        return place.kind, "points below the stack of the crashed thread"
    if region is None or region.kind in _NOWHERE:
        return place.kind, None
    function = next((frame.function for frame in crash.code_pointers if frame.pc == place.addr), None)
    inside = f", in {function_words(function)}" if function and region.kind == "image" else ""
    return _POINTER_KINDS.get(region.kind, place.kind), f"points into {region.words}{inside}"
