"""Address -> what lived there, and when.

Storages come from the crash handler's own search first (other threads may have changed the table since), else from
the tables of the box. What a storage is called is the work of `naming.py`.
"""

from __future__ import annotations

from pytracer.analyze.buckets import forgotten_bucket
from pytracer.analyze.instruction import is_canonical
from pytracer.analyze.naming import names_of_storage
from pytracer.analyze.origins import is_borrowed
from pytracer.analyze.place import Place
from pytracer.decode.snapshot import Crash, Mapping, Snapshot, Storage

NEAR_NULL_BYTES = 64 * 1024
NEARBY_BYTES = 64 * 1024
STACK_GUARD_BYTES = 64 * 1024
SEGV_MAPERR = 1


def describe_address(snapshot: Snapshot, addr: int) -> Place:
    """What lived at `addr` when the process died, or at the end of the box."""
    crash = snapshot.crash
    mapping = find_mapping(crash, addr)
    if addr < NEAR_NULL_BYTES:
        return Place(addr, "null" if addr == 0 else "near-null", mapping=mapping)
    if snapshot.arch.startswith("x86") and not is_canonical(addr):
        return Place(addr, "non-canonical")
    live, freed = _covering(snapshot, addr, "live"), _covering(snapshot, addr, "freed")
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
        nearest = _nearest_live(snapshot, addr)
        if nearest is not None:
            kind = "before-storage" if addr < nearest.base else "past-storage"
            return _in_storage(snapshot, addr, kind, (nearest, "guessed"), mapping)
    return Place(addr, _mapping_kind(crash, mapping), mapping=mapping)


def find_mapping(crash: Crash | None, addr: int) -> Mapping | None:
    """The mapping that `addr` lay in at the crash."""
    if crash is None:
        return None
    return next((item for item in crash.mappings if item.start <= addr < item.end), None)


def _in_storage(snapshot: Snapshot, addr: int, kind: str, hit: tuple[Storage, str], mapping: Mapping | None) -> Place:
    storage, found = hit
    end = storage.base + storage.nbytes
    distance = storage.base - addr if addr < storage.base else max(addr - end + 1, 0) if addr >= end else 0
    bucket, names = names_of_storage(snapshot, storage, addr)
    earlier = _earlier_names(snapshot, storage, addr) if distance == 0 else ()
    return Place(addr, kind, storage, addr - storage.base, distance, found, bucket, names, mapping, earlier)


def _earlier_names(snapshot: Snapshot, storage: Storage, addr: int) -> tuple[str, ...]:
    lives = [item for item in snapshot.storages if item.order < storage.order and _covers(item, addr)]
    names: dict[str, None] = {}
    for life in sorted(lives, key=lambda item: item.order, reverse=True):
        names.update(dict.fromkeys(names_of_storage(snapshot, life, addr)[1][:1]))
    return tuple(names)


def _covering(snapshot: Snapshot, addr: int, state: str) -> tuple[Storage, str] | None:
    """The most recent storage of that state around `addr`, and whether the handler itself found it."""
    hits = [hit.storage for hit in (snapshot.crash.hits if snapshot.crash else ()) if hit.kind == "covering"]
    for candidates, found in ((hits, "exact"), (snapshot.storages, "guessed")):
        matching = [item for item in candidates if item.state == state and _covers(item, addr)]
        if matching:
            return max(matching, key=lambda item: (state == "live" and not is_borrowed(item), item.order)), found
    return None


def _covers(storage: Storage, addr: int) -> bool:
    return storage.base <= addr < storage.base + storage.nbytes


def _nearest_live(snapshot: Snapshot, addr: int) -> Storage | None:
    """The closest live storage within a sensible distance: NEARBY_BYTES, or its own size if that is more."""
    hits = tuple(hit.storage for hit in snapshot.crash.hits) if snapshot.crash else ()
    best: tuple[int, Storage] | None = None
    for item in (*hits, *snapshot.storages):
        if item.state != "live":
            continue
        distance = item.base - addr if addr < item.base else addr - item.base - item.nbytes + 1
        if distance <= max(NEARBY_BYTES, item.nbytes) and (best is None or distance < best[0]):
            best = (distance, item)
    return best[1] if best else None


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
