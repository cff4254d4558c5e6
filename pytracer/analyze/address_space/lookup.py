"""Address -> what lived there, and when.

Storages come from the crash handler's own search first (other threads may have changed the table since), else from
the tables of the box. What a storage is called is the work of `tensors/lifetime_names.py`.
"""

from __future__ import annotations

from dataclasses import replace

from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.device_memory import segment_at
from pytracer.analyze.address_space.guard_pool import FOUND, guarded_at, pool_of
from pytracer.analyze.address_space.neighbors import covers, distance_to, lives_before, nearest_live
from pytracer.analyze.address_space.regions import NEAR_NULL_BYTES, mapping_at, region_of
from pytracer.analyze.platform.instruction import is_canonical
from pytracer.analyze.tensors.ddp import forgotten_bucket
from pytracer.analyze.tensors.fsdp import unit_of_storage
from pytracer.analyze.tensors.lifetime_names import names_of_storage
from pytracer.analyze.tensors.origins import is_borrowed
from pytracer.decode.types.snapshot import Crash, Mapping, Snapshot, Storage

STACK_GUARD_BYTES = 64 * 1024
SEGV_MAPERR = 1


def describe_address(snapshot: Snapshot, addr: int) -> Place:
    """What lived at `addr` when the process died, or at the end of the box."""
    crash = snapshot.crash
    mapping = mapping_at(crash.mappings, addr) if crash else None
    if addr < NEAR_NULL_BYTES:
        return Place(addr, "null" if addr == 0 else "near-null", mapping=mapping)
    if snapshot.arch.startswith("x86") and not is_canonical(addr):
        return Place(addr, "non-canonical")
    if pool_of(snapshot.guard, addr) is not None:
        return _in_guard_pool(snapshot, addr, mapping)
    live, freed = _covering(snapshot, addr, "live"), _covering(snapshot, addr, "freed")
    segment = segment_at(snapshot, addr)
    block = next((hit for hit in (live, freed) if hit is not None and hit[0].device != "cpu"), None)
    if block is not None:
        return replace(_in_storage(snapshot, addr, "device-memory", block, mapping), segment=segment)
    if segment is not None:
        return Place(addr, "device-memory", mapping=mapping, segment=segment)
    if live is not None:
        return _in_storage(snapshot, addr, "in-storage", live, mapping)
    if crash is not None and _is_stack_guard(crash, addr, mapping):
        return Place(addr, "stack-guard", mapping=mapping)
    named = mapping is not None and mapping.path != ""
    if freed is not None and mapping is not None and is_borrowed(freed[0]):
        freed = None  # the memory is there: its owner has kept it, and may use it
    if freed is None:
        freed = forgotten_bucket(snapshot, addr)
    if freed is not None and not named:
        return _in_storage(snapshot, addr, "freed-storage", freed, mapping)
    if mapping is None or (not named and not mapping.permissions.startswith(("r", "-w", "--x"))):
        beside = nearest_live(snapshot, addr).values()
        if beside:
            nearest = min(beside, key=lambda item: distance_to(item, addr))
            kind = "before-storage" if addr < nearest.base else "past-storage"
            return _in_storage(snapshot, addr, kind, (nearest, "guessed"), mapping)
    region = region_of(snapshot, addr)
    on_stack = region is not None and region.kind == "stack"
    return Place(addr, "stack" if on_stack else _mapping_kind(crash, mapping), mapping=mapping)


def _in_guard_pool(snapshot: Snapshot, addr: int, mapping: Mapping | None) -> Place:
    """Pages there belong to one storage each, and to none for a long time after it was freed."""
    hit = guarded_at(snapshot, addr)
    if hit is None:
        return Place(addr, "unmapped", mapping=mapping)
    storage, kind = hit
    return _in_storage(snapshot, addr, kind, (storage, FOUND), mapping)


def _in_storage(snapshot: Snapshot, addr: int, kind: str, hit: tuple[Storage, str], mapping: Mapping | None) -> Place:
    storage, found = hit
    distance = distance_to(storage, addr)
    bucket, names = names_of_storage(snapshot, storage, addr)
    earlier = _earlier_names(snapshot, storage, addr) if distance == 0 else ()
    unit = unit_of_storage(snapshot, storage, addr)
    return Place(addr, kind, storage, addr - storage.base, distance, found, bucket, names, mapping, earlier, unit=unit)


def _earlier_names(snapshot: Snapshot, storage: Storage, addr: int) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for life in lives_before(snapshot, addr, storage):
        names.update(dict.fromkeys(names_of_storage(snapshot, life, addr)[1][:1]))
    return tuple(names)


def _covering(snapshot: Snapshot, addr: int, state: str) -> tuple[Storage, str] | None:
    """The most recent storage of that state around `addr`, and whether the handler itself found it."""
    hits = [hit.storage for hit in (snapshot.crash.hits if snapshot.crash else ()) if hit.kind == "covering"]
    for candidates, found in ((hits, "exact"), (snapshot.storages.around(addr), "guessed")):
        matching = [item for item in candidates if item.state == state and covers(item, addr)]
        if matching:
            last = max(matching, key=lambda item: (state == "live" and not is_borrowed(item), item.order))
            # Blocks of devices are known as they were at the crash (decode/recording/devices.py).
            return last, "exact" if last.device != "cpu" and snapshot.crash is not None else found
    return None


def _is_stack_guard(crash: Crash, addr: int, mapping: Mapping | None) -> bool:
    if crash.stack is None:
        return False
    low = crash.stack[0]
    if low - STACK_GUARD_BYTES <= addr < low:
        return mapping is None or "r" not in mapping.permissions
    # The main thread's stack grows on demand: its end is where the kernel refuses, close to the stack pointer.
    return low <= addr < crash.stack[1] and abs(addr - crash.sp) <= STACK_GUARD_BYTES and mapping is None


def _mapping_kind(crash: Crash | None, mapping: Mapping | None) -> str:
    if mapping is None:
        known = crash is not None and (bool(crash.mappings) or (crash.signal == 11 and crash.code == SEGV_MAPERR))
        return "unmapped" if known else "none"
    if mapping.path.startswith("/dev/nvidia"):
        return "device-memory"
    if mapping.path.startswith("/"):
        mappings = crash.mappings if crash else ()
        return (
            "image"
            if any("x" in item.permissions for item in mappings if item.path == mapping.path)
            else "file-mapping"
        )
    return "heap" if mapping.path in ("", "[heap]") else "none"
