"""Address -> what lived there, and when.

Storages come from the crash handler's own search first (other threads may have changed the table since), else from
the tables of the box. What an address is called, e.g. a DDP bucket, is decided by the *life* of the storage: the
allocator hands the same address out again and again, so a name counts only for the life it was recorded in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pytracer.analyze.instruction import is_canonical
from pytracer.decode.snapshot import Crash, Fact, Mapping, Moment, Snapshot, Storage, Who

NEAR_NULL_BYTES = 64 * 1024
NEARBY_BYTES = 64 * 1024
STACK_GUARD_BYTES = 64 * 1024
SEGV_MAPERR = 1


@dataclass(frozen=True)
class BucketLife:
    """A DDP bucket that lived in a storage.

    `parameters` are the fully qualified names; `rebuilt` says that a newer generation was recorded later.
    """

    module: str
    index: int
    generation: int
    nbytes: int
    parameters: tuple[str, ...]
    offset_bytes: int
    parameter: str | None
    rebuilt: bool
    rebuilt_mono_ns: int | None

    @property
    def name(self) -> str:
        """E.g. `DDP bucket 0 of model (generation 0)`."""
        return f"DDP bucket {self.index} of {self.module} (generation {self.generation})"


@dataclass(frozen=True)
class Place:
    """What an address was. `kind` is one of report.Fault.kind; `distance_bytes` is 0 inside the storage.

    `earlier` are the names of older lives at the same address, the latest first: a stale pointer may be older than the
    last owner of the memory.
    """

    addr: int
    kind: str
    storage: Storage | None = None
    offset_bytes: int | None = None
    distance_bytes: int | None = None
    found: str | None = None
    bucket: BucketLife | None = None
    names: tuple[str, ...] = ()
    mapping: Mapping | None = None
    earlier: tuple[str, ...] = ()


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
    if freed is None:
        freed = _forgotten_bucket(snapshot, addr)
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


def names_of_storage(snapshot: Snapshot, storage: Storage, addr: int) -> tuple[BucketLife | None, tuple[str, ...]]:
    """What one life of a storage was called: its DDP bucket, and all names: bucket, what lies at `addr`, the rest."""
    bucket = _bucket(snapshot, storage, addr)
    at_addr: dict[str, None] = {bucket.name: None} if bucket else {}
    others: dict[str, None] = {}
    for fact in _facts(snapshot, "MODULE", storage):
        for tensor in objects_in(fact.data, "tensors"):
            start, nbytes = _number(tensor, "addr"), _number(tensor, "nbytes")
            if not storage.base <= start < storage.base + max(storage.nbytes, 1):
                continue
            name = f"{tensor.get('role') or 'tensor'} {tensor.get('fqn')}"
            (at_addr if start <= addr < start + max(nbytes, 1) else others).setdefault(name)
    return bucket, tuple({**at_addr, **others})


def bucket_at(snapshot: Snapshot, addr: int, mono_ns: int | None) -> BucketLife | None:
    """The DDP bucket that `addr` lay in at `mono_ns`, by the last layout recorded before it."""
    layouts = [fact for fact in snapshot.facts if fact.kind == "BUCKETS" and isinstance(fact.data, dict)]
    before = [fact for fact in layouts if mono_ns is None or fact.mono_ns <= mono_ns]
    for fact in reversed(before):
        for bucket in objects_in(fact.data, "buckets"):
            if _number(bucket, "addr") <= addr < _number(bucket, "addr") + max(_number(bucket, "nbytes"), 1):
                return _bucket_life(fact, bucket, addr, layouts)
    return None


def _forgotten_bucket(snapshot: Snapshot, addr: int) -> tuple[Storage, str] | None:
    """A bucket that DDP replaced so long ago that newer frees have overwritten the record of its storage.

    Layouts are facts and stay: the bucket lived when its layout was noted, and was gone when the next one was.
    """
    layouts = [fact for fact in snapshot.facts if fact.kind == "BUCKETS" and isinstance(fact.data, dict)]
    for fact in reversed(layouts):
        for bucket in objects_in(fact.data, "buckets"):
            base, nbytes = _number(bucket, "addr"), _number(bucket, "nbytes")
            life = _bucket_life(fact, bucket, addr, layouts)
            if not base <= addr < base + nbytes or not life.rebuilt:
                continue
            gone = min(item.epoch for item in layouts if item.mono_ns == life.rebuilt_mono_ns)
            storage = Storage(
                base=base,
                nbytes=nbytes,
                state="freed",
                allocated=Moment(fact.epoch - 1, None, None),
                allocated_by=Who(),
                allocated_thread=None,
                freed=Moment(gone, life.rebuilt_mono_ns, None),
                order=(gone, 0),
            )
            return storage, "guessed"
    return None


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
            return max(matching, key=lambda item: item.order), found
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


def _bucket(snapshot: Snapshot, storage: Storage, addr: int) -> BucketLife | None:
    layouts = [fact for fact in snapshot.facts if fact.kind == "BUCKETS" and isinstance(fact.data, dict)]
    for fact in reversed(list(_facts(snapshot, "BUCKETS", storage))):
        for bucket in objects_in(fact.data, "buckets"):
            if storage.base <= _number(bucket, "addr") < storage.base + max(storage.nbytes, 1):
                return _bucket_life(fact, bucket, addr, layouts)
    return None


def _bucket_life(fact: Fact, bucket: dict[str, Any], addr: int, layouts: list[Fact]) -> BucketLife:
    module, generation = str(fact.data.get("module") or "?"), _number(fact.data, "generation")
    offset = addr - _number(bucket, "addr")
    parameters = objects_in(bucket, "parameters")
    inside = [
        str(item.get("fqn"))
        for item in parameters
        if _number(item, "offset_bytes") <= offset < _number(item, "offset_bytes") + _number(item, "nbytes")
    ]
    newer = [
        item
        for item in layouts
        if str(item.data.get("module") or "?") == module and _number(item.data, "generation") > generation
    ]
    return BucketLife(
        module=module,
        index=_number(bucket, "index"),
        generation=generation,
        nbytes=_number(bucket, "nbytes"),
        parameters=tuple(str(item.get("fqn")) for item in parameters),
        offset_bytes=offset,
        parameter=inside[0] if inside else None,
        rebuilt=bool(newer),
        rebuilt_mono_ns=min((item.mono_ns for item in newer), default=None),
    )


def _facts(snapshot: Snapshot, kind: str, storage: Storage) -> Iterator[Fact]:
    """The facts of one kind that were written during the life of `storage`.

    An entry begins an epoch, so a storage allocated in that very epoch came after it - unless epochs were too coarse to
    see an earlier one: then, and only then, the same epoch counts as well.
    """
    for fact in snapshot.facts:
        if fact.kind != kind or not isinstance(fact.data, dict):
            continue
        if _lived_before(storage, fact.epoch):
            yield fact
        elif storage.allocated.epoch == fact.epoch:
            others = [item for item in snapshot.storages if item.base == storage.base and item != storage]
            if not any(_lived_before(item, fact.epoch) for item in others):
                yield fact


def _lived_before(storage: Storage, epoch: int) -> bool:
    return storage.allocated.epoch < epoch and (storage.freed is None or epoch <= storage.freed.epoch)


def objects_in(data: Any, key: str) -> list[dict[str, Any]]:
    """A list of objects from a journal entry; whatever is damaged or missing is left out."""
    items = data.get(key) if isinstance(data, dict) else None
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _number(data: dict[str, Any], key: str) -> int:
    value = data.get(key)
    return value if isinstance(value, int) else 0
