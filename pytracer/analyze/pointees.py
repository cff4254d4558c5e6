"""What the registers of the crashed thread, and the words at the top of its stack, point at.

A register that holds a pointer into a tensor's storage often says more than the address that was refused.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import replace

from pytracer._words import function_words, hex_addr, size_words
from pytracer.analyze import report as r
from pytracer.analyze.address import NEAR_NULL_BYTES, describe_address
from pytracer.analyze.clock import RunClock
from pytracer.analyze.instruction import is_canonical
from pytracer.analyze.parts import storage_report
from pytracer.analyze.place import Place
from pytracer.decode.snapshot import Crash, LoadedImage, Snapshot, Storage

STACK_WORDS = 16
_WORD_BYTES = 8
_STATE_REGISTERS = frozenset(("eflags", "csgsfs", "err", "trapno", "oldmask", "cr2", "pstate"))
_STACK_POINTERS = ("rsp", "sp")
_NEAREST = ("past-storage", "before-storage")
_TELLING = ("in-storage", "freed-storage", "past-storage", "image", "file-mapping", "device-memory")


def explain_pointers(snapshot: Snapshot, crash: Crash, place: Place | None, clock: RunClock) -> list[r.Pointer]:
    """Every register, and at most `STACK_WORDS` words of the stack, that points at something known.

    Args:
        snapshot: The process.
        crash: Its crash.
        place: The fault address, already explained.
        clock: Times of the run.
    """
    registers = [(name, value) for name, value in crash.registers.items() if name not in _STATE_REGISTERS]
    words = list(_stack_words(crash))
    values = {value for _, value in (*registers, *words) if _may_point(snapshot, value)}
    reduced = replace(snapshot, storages=_storages_at(snapshot, values))
    known: dict[int, r.Pointer] = {}
    for value in values:
        pointer = _pointer(reduced, crash, value, place, clock)
        if pointer is not None:
            known[value] = pointer
    told = [(name, value) for name, value in words if value in known and known[value].kind in _TELLING]
    named = [(name, known[value]) for name, value in (*registers, *told[:STACK_WORDS]) if value in known]
    return [_renamed(pointer, name) for name, pointer in named]


def _renamed(pointer: r.Pointer, register: str) -> r.Pointer:
    fields = {name: getattr(pointer, name) for name in pointer.__struct_fields__}
    return r.Pointer(**{**fields, "register": register})


def _stack_words(crash: Crash) -> Iterator[tuple[str, int]]:
    """The words of memory that were kept from the stack pointer on."""
    for block in crash.memory:
        if block.register in _STACK_POINTERS:
            first = max(block.addr, crash.sp)
            for addr in range(-(-first // _WORD_BYTES) * _WORD_BYTES, block.addr + len(block.content), _WORD_BYTES):
                word = block.content[addr - block.addr :][:_WORD_BYTES]
                if len(word) == _WORD_BYTES:
                    yield f"stack+{addr - crash.sp:#x}", int.from_bytes(word, "little")


def _may_point(snapshot: Snapshot, value: int) -> bool:
    return value >= NEAR_NULL_BYTES and (is_canonical(value) or not snapshot.arch.startswith("x86"))


def _storages_at(snapshot: Snapshot, addresses: set[int]) -> tuple[Storage, ...]:
    """The storages that cover one of the addresses or end right before it, and other lives at their bases.

    One pass over up to 2^16 storages, with the few addresses sorted, instead of one pass per address.
    """
    ordered = sorted(addresses)
    touched = {
        item.base
        for item in snapshot.storages
        if bisect_left(ordered, item.base) < bisect_right(ordered, item.base + item.nbytes)
    }
    return tuple(item for item in snapshot.storages if item.base in touched)


def _pointer(snapshot: Snapshot, crash: Crash, value: int, fault: Place | None, clock: RunClock) -> r.Pointer | None:
    place = fault if fault is not None and fault.addr == value else describe_address(snapshot, value)
    ends = value != (fault.addr if fault else None) and place.kind in _NEAREST
    if ends and not (place.kind == "past-storage" and place.storage and _end(place.storage) == value):
        place = replace(place, kind="none", storage=None, bucket=None, names=())
    kind, says = (place.kind, _storage_words(place)) if place.storage is not None else _other_words(crash, place)
    if says is None:
        return None
    return r.Pointer(
        addr=hex_addr(value),
        says=says,
        kind=kind,
        storage=storage_report(snapshot, place, clock),
        offset_bytes=place.offset_bytes if place.storage else None,
        names=list(place.names) if place.storage else None,
        found=place.found if place.storage else None,
    )


def _end(storage: Storage) -> int:
    return storage.base + storage.nbytes


def _storage_words(place: Place) -> str | None:
    """`points 64 bytes into a live storage of 4096 bytes (parameter layer.weight)`."""
    storage = place.storage
    if storage is None:
        return None
    kind = "a live storage" if storage.state == "live" else "freed storage"
    if place.kind == "before-storage":
        where = f"{place.distance_bytes} bytes before"
    elif place.kind == "past-storage":
        behind = place.addr - _end(storage)
        where = f"{behind} bytes behind the end of" if behind else "right behind the end of"
    else:
        where = f"{place.offset_bytes} bytes into" if place.offset_bytes else "to the start of"
    name = place.names[0] if place.names else ""
    if place.bucket is not None and place.bucket.parameter:
        name += f", gradient of {place.bucket.parameter}"
    return f"points {where} {kind} of {size_words(storage.nbytes)}" + (f" ({name})" if name else "")


def _other_words(crash: Crash, place: Place) -> tuple[str, str | None]:
    """Kind and words for what is no storage; no words when nothing is known."""
    addr, mapping = place.addr, place.mapping
    if crash.stack is not None and crash.stack[0] <= addr < crash.stack[1]:
        return "stack", "points into the stack of the crashed thread"
    if place.kind == "stack-guard":
        return place.kind, "points below the stack of the crashed thread"
    image = next((item for item in crash.images if item.start <= addr < item.end), None)
    if image is not None:
        function = next((frame.function for frame in crash.code_pointers if frame.pc == addr), None)
        return "image", _image_words(image, addr) + (f", in {function_words(function)}" if function else "")
    if mapping is None:
        return place.kind, None
    if place.kind in ("image", "file-mapping"):
        name = mapping.path.rsplit("/", 1)[-1] if place.kind == "image" else f"the mapped file {mapping.path}"
        return place.kind, f"points into {name} at byte {addr - mapping.start + mapping.offset} of the file"
    if place.kind == "device-memory":
        return place.kind, f"points into memory of {mapping.path}"
    if mapping.path == "[stack]":
        return "stack", "points into the stack of the main thread"
    if mapping.path == "[heap]":
        return "heap", "points into the heap"
    return place.kind, f"points into {mapping.path or 'anonymous memory'} ({mapping.permissions})"


def _image_words(image: LoadedImage, addr: int) -> str:
    return f"points into {image.path.rsplit('/', 1)[-1]} at offset {hex_addr(addr - image.bias)}"
