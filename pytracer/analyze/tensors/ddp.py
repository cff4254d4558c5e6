"""DDP's gradient buckets: which one lived in a storage, and whether DDP has replaced it since."""

from __future__ import annotations

from typing import Any

from pytracer.analyze.address_space.address_info import BucketLife
from pytracer.analyze.tensors.journal import facts_of_life, number_in, objects_in
from pytracer.decode.types.snapshot import Fact, Moment, Snapshot, Storage, Who

_MOST_LAYOUTS = 1024  # DDP makes two for a model


def bucket_at(snapshot: Snapshot, addr: int, mono_ns: int | None) -> BucketLife | None:
    """The DDP bucket that `addr` lay in at `mono_ns`, by the last layout recorded before it."""
    layouts = _layouts(snapshot)
    before = [fact for fact in layouts if mono_ns is None or fact.mono_ns <= mono_ns]
    for fact in reversed(before):
        for bucket in objects_in(fact.data, "buckets"):
            if number_in(bucket, "addr") <= addr < number_in(bucket, "addr") + max(number_in(bucket, "nbytes"), 1):
                return _bucket_life(fact, bucket, addr, layouts)
    return None


def bucket_named(snapshot: Snapshot, module: str, index: int, mono_ns: int | None) -> BucketLife | None:
    """A bucket of a module by its number, in the last layout recorded before `mono_ns`."""
    return next((item for item in buckets_before(snapshot, module, mono_ns) if item.index == index), None)


def buckets_before(snapshot: Snapshot, module: str, mono_ns: int | None) -> list[BucketLife]:
    """The buckets of a module, in the last layout recorded before `mono_ns`."""
    layouts = _layouts(snapshot)
    for fact in reversed(layouts):
        if str(fact.data.get("module") or "?") == module and (mono_ns is None or fact.mono_ns <= mono_ns):
            found = objects_in(fact.data, "buckets")
            return [_bucket_life(fact, bucket, number_in(bucket, "addr"), layouts) for bucket in found]
    return []


def bucket_of_storage(snapshot: Snapshot, storage: Storage, addr: int) -> BucketLife | None:
    """The DDP bucket that one life of a storage was, by the last layout recorded during it."""
    layouts = _layouts(snapshot)
    for fact in reversed(list(facts_of_life(snapshot, "BUCKETS", storage))):
        for bucket in objects_in(fact.data, "buckets"):
            if storage.base <= number_in(bucket, "addr") < storage.base + max(storage.nbytes, 1):
                return _bucket_life(fact, bucket, addr, layouts)
    return None


def forgotten_bucket(snapshot: Snapshot, addr: int) -> tuple[Storage, str] | None:
    """A bucket that DDP replaced so long ago that newer frees have overwritten the record of its storage.

    Layouts are facts and stay: the bucket lived when its layout was noted, and was gone when the next one was.
    """
    layouts = _layouts(snapshot)
    for fact in reversed(layouts):
        for bucket in objects_in(fact.data, "buckets"):
            base, nbytes = number_in(bucket, "addr"), number_in(bucket, "nbytes")
            if not base <= addr < base + nbytes:
                continue
            life = _bucket_life(fact, bucket, addr, layouts)
            if not life.rebuilt:
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


def _layouts(snapshot: Snapshot) -> list[Fact]:
    """The latest layouts of all models: each of them is compared with the others."""
    found = [fact for fact in snapshot.facts if fact.kind == "BUCKETS" and isinstance(fact.data, dict)]
    return found[-_MOST_LAYOUTS:]


def _bucket_life(fact: Fact, bucket: dict[str, Any], addr: int, layouts: list[Fact]) -> BucketLife:
    """A bucket of a BUCKETS fact, with what lay at `addr`, and whether any of `layouts` replaced it."""
    module, generation = str(fact.data.get("module") or "?"), number_in(fact.data, "generation")
    offset = addr - number_in(bucket, "addr")
    parameters = objects_in(bucket, "parameters")
    inside = [
        str(item.get("fqn"))
        for item in parameters
        if number_in(item, "offset_bytes") <= offset < number_in(item, "offset_bytes") + number_in(item, "nbytes")
    ]
    newer = [
        item
        for item in layouts
        if str(item.data.get("module") or "?") == module and number_in(item.data, "generation") > generation
    ]
    return BucketLife(
        module=module,
        index=number_in(bucket, "index"),
        generation=generation,
        nbytes=number_in(bucket, "nbytes"),
        parameters=tuple(str(item.get("fqn")) for item in parameters),
        offset_bytes=offset,
        parameter=inside[0] if inside else None,
        rebuilt=bool(newer),
        rebuilt_mono_ns=min((item.mono_ns for item in newer), default=None),
    )
