"""DDP's gradient buckets: which one lived in a storage, and whether DDP has replaced it since."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer.analyze.address_space.address_info import BucketLife
from pytracer.analyze.tensors.journal import ByAddress, Lives
from pytracer.decode.types.journal import Bucket, Buckets, Fact
from pytracer.decode.types.snapshot import CallSite, Moment, Storage

_MOST_LAYOUTS = 1024  # DDP makes two for a model


class DdpBuckets:
    """The layouts of DDP's buckets that one process recorded."""

    def __init__(self, recorded: Sequence[Fact[Buckets]], lives: Lives) -> None:
        self._recorded, self._lives = recorded, lives
        # The latest of all models: each of them is compared with the others.
        self._layouts = recorded[-_MOST_LAYOUTS:]
        # Of several buckets of one layout in a storage, the first one counts.
        self._by_addr = ByAddress(
            (bucket.addr, (fact, bucket)) for fact in recorded for bucket in reversed(fact.data.buckets)
        )

    def last_layouts(self) -> list[Buckets]:
        """The last layout of each DDP module, in the order in which the modules were first recorded."""
        return list({fact.data.module: fact.data for fact in self._recorded}.values())

    def at(self, addr: int, mono_ns: int | None) -> BucketLife | None:
        """The DDP bucket at `addr` at `mono_ns`, by the last layout recorded before it."""
        before = [fact for fact in self._layouts if mono_ns is None or fact.mono_ns <= mono_ns]
        for fact in reversed(before):
            for bucket in fact.data.buckets:
                if bucket.addr <= addr < bucket.addr + max(bucket.nbytes, 1):
                    return _bucket_life(fact, bucket, addr, self._layouts)
        return None

    def named(self, module: str, index: int, mono_ns: int | None) -> BucketLife | None:
        """A bucket of a module by its number, in the last layout recorded before `mono_ns`."""
        return next((item for item in self.before(module, mono_ns) if item.index == index), None)

    def before(self, module: str, mono_ns: int | None) -> list[BucketLife]:
        """The buckets of a module, in the last layout recorded before `mono_ns`."""
        for fact in reversed(self._layouts):
            if fact.data.module == module and (mono_ns is None or fact.mono_ns <= mono_ns):
                return [_bucket_life(fact, bucket, bucket.addr, self._layouts) for bucket in fact.data.buckets]
        return []

    def of_storage(self, storage: Storage, addr: int) -> BucketLife | None:
        """The DDP bucket that a storage was, by the last layout recorded during its allocation lifetime."""
        for fact, bucket in reversed(self._by_addr.within(storage)):
            if self._lives.include(storage, fact.epoch):
                return _bucket_life(fact, bucket, addr, self._layouts)
        return None

    def forgotten(self, addr: int) -> tuple[Storage, str] | None:
        """A bucket that DDP replaced so long ago that newer frees have overwritten the record of its storage.

        Layouts are kept: the bucket lived when its layout was recorded, and was gone when the next one was.
        """
        for fact in reversed(self._layouts):
            for bucket in fact.data.buckets:
                if not bucket.addr <= addr < bucket.addr + bucket.nbytes:
                    continue
                life = _bucket_life(fact, bucket, addr, self._layouts)
                if not life.rebuilt:
                    continue
                gone = min(item.epoch for item in self._layouts if item.mono_ns == life.rebuilt_mono_ns)
                storage = Storage(
                    base=bucket.addr,
                    nbytes=bucket.nbytes,
                    state="freed",
                    allocated=Moment(fact.epoch - 1, None, None),
                    allocated_by=CallSite(),
                    allocated_thread=None,
                    freed=Moment(gone, life.rebuilt_mono_ns, None),
                    order=(gone, 0),
                )
                return storage, "guessed"
        return None


def _bucket_life(fact: Fact[Buckets], bucket: Bucket, addr: int, layouts: Sequence[Fact[Buckets]]) -> BucketLife:
    """A bucket of a BUCKETS entry, with the parameter at `addr`, and whether any of `layouts` replaced it."""
    module, generation = fact.data.module, fact.data.generation
    offset = addr - bucket.addr
    inside = [item.fqn for item in bucket.parameters if item.offset_bytes <= offset < item.offset_bytes + item.nbytes]
    newer = [item for item in layouts if item.data.module == module and item.data.generation > generation]
    return BucketLife(
        module=module,
        index=bucket.index,
        generation=generation,
        nbytes=bucket.nbytes,
        parameters=tuple(item.fqn for item in bucket.parameters),
        offset_bytes=offset,
        parameter=inside[0] if inside else None,
        rebuilt=bool(newer),
        rebuilt_mono_ns=min((item.mono_ns for item in newer), default=None),
    )
