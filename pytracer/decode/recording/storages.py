"""Storages: the table of live ones, the freed-storage rings, and the coarse timestamps of both."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from pytracer.blackbox import schema
from pytracer.blackbox.schema import Region
from pytracer.decode.recording.file import BoxFile, Extent
from pytracer.decode.recording.journal import Journal
from pytracer.decode.types.snapshot import Moment, Storage, ThreadInfo
from pytracer.decode.types.storage_table import Part

_SLOT = struct.Struct("<QQIIII")
_FREED = struct.Struct("<QQIHHIIIIIIIIII")
_EXTERNAL = struct.Struct("<II64sQQII160s")
_IN_TABLE = tuple(  # by the bits of a key
    schema.Origin(number).name if number in set(schema.Origin) else None for number in range(schema.KEY_ORIGIN_MASK + 1)
)
_NAMES = {int(origin): origin.name for origin in schema.Origin}
_OLDER, _CUT = 1, 2
_EPOCH = struct.Struct("<IIQq")
_SIZE_MASK = (1 << 48) - 1
_ADDRESS_END = 1 << 64


class Clock:
    """Epoch to moment: from the EPOCHS region, else from the journal, whose entries are not overwritten."""

    def __init__(self, box: BoxFile, journal: Journal) -> None:
        extent = box.region(Region.EPOCHS, schema.EPOCH.nbytes)
        self._extent, self._data = extent, box.content(extent)
        self._journal = {e.epoch: e.mono_ns for e in journal.entries.values() if e.epoch}
        self._moments: dict[int, Moment] = {}

    def moment(self, epoch: int) -> Moment:
        """When an epoch began; its time is None when its slot was taken by a later one."""
        found = self._moments.get(epoch)
        if found is None:
            found = self._moments[epoch] = self._read(epoch)
        return found

    def _read(self, epoch: int) -> Moment:
        began, ended = self._slot(epoch), self._slot(epoch + 1)
        ended_ns = ended[0] if ended is not None else self._journal.get(epoch + 1)
        if began is None:
            return Moment(epoch, self._journal.get(epoch), None, ended_ns)
        return Moment(epoch, began[0], began[1] if began[1] >= 0 else None, ended_ns)

    def _slot(self, epoch: int) -> tuple[int, int] | None:
        """When an epoch began, and the step."""
        extent = self._extent
        if extent is None or not extent.declared_count or not epoch:
            return None
        at = epoch % extent.declared_count * extent.item_bytes
        if at + _EPOCH.size > len(self._data):
            return None
        written, _, mono_ns, step = _EPOCH.unpack_from(self._data, at)
        return (mono_ns, step) if written == epoch else None


def _life_key(base: int, thread: int, sequence: int) -> int:
    """One number that identifies an allocation lifetime: a tuple for each of a million entries would be too much."""
    return base << 48 | thread << 32 | sequence


@dataclass
class Threads:
    """Thread contexts by index, and the ring shapes that follow from the file."""

    by_index: dict[int, ThreadInfo] = field(default_factory=dict)
    recycled: set[int] = field(default_factory=set)

    def tid(self, index: int) -> int | None:
        """Kernel thread id; None when the context was handed on, so that it may have been an earlier thread."""
        info = self.by_index.get(index)
        return None if info is None or index in self.recycled else info.tid


class Storages:
    """Decodes all storages of a recording."""

    def __init__(self, box: BoxFile, journal: Journal, clock: Clock, threads: Threads) -> None:
        self._box, self._journal, self.clock, self._threads = box, journal, clock, threads
        self._created_ns: int = box.header.created_mono_ns
        self._forked = any(e.mono_ns < self._created_ns for e in journal.entries.values())
        self.busy_slots = 0
        self.torn_slots = 0
        self.torn_freed = 0
        self.being_freed = 0
        self.busy_foreign = 0
        self._site_ids: set[int] = set()
        self._external_slots = [
            slot
            for extent in box.regions(Region.EXTERNAL_ALLOCATIONS, _EXTERNAL.size)
            for slot in box.unpack(extent, _EXTERNAL)
        ]

    def read(self) -> tuple[Part, ...]:
        """Freed storages, then live ones, then external ones; each once."""
        freed, freed_keys = self._freed()
        live = [self._live(extent, freed_keys) for extent in self._box.regions(Region.STORAGES, _SLOT.size)]
        self._journal.note_unknown(self._site_ids)
        return (*freed, *live, Part.of(list(self._foreign())))

    def _born_on(self, thread: int, moment: Moment) -> int | None:
        """The allocating thread; unknown for storages inherited by fork(), whose thread indexes are the parent's."""
        if self._forked and (moment.mono_ns is None or moment.mono_ns < self._created_ns):
            return None
        return self._threads.tid(thread)

    def _live(self, extent: Extent, freed_keys: set[int]) -> Part:
        """The live ones of a table; its slots are scanned once here, and decoded later."""
        part = Part(lambda slot: self._in_slot(extent, slot))
        add_base, add_size, add_slot = part.bases.append, part.sizes.append, part.slots.append
        for slot, (key, size_thread, site_id, _, _, sequence) in enumerate(self._box.unpack(extent, _SLOT)):
            if not key:
                continue
            state = key & schema.KEY_STATE_MASK
            if state != schema.KEY_LIVE:
                self.busy_slots += state == schema.KEY_BUSY
                continue
            if key >> 48 != sequence & 0xFFFF:
                self.torn_slots += 1  # copied by a forked child while the parent wrote it
                continue
            base = key & schema.KEY_ADDR_MASK
            if freed_keys and _life_key(base, size_thread >> 48, sequence) in freed_keys:
                self.being_freed += 1  # the writer died between writing the freed entry and emptying the slot
                continue
            add_base(base)
            add_size(size_thread & _SIZE_MASK)
            add_slot(slot)
            self._site_ids.add(site_id)
        part.live = bytearray(b"\1") * len(part.slots)
        return part

    def _in_slot(self, extent: Extent, slot: int) -> Storage:
        key, size_thread, site_id, where, epoch, sequence = self._box.item(extent, _SLOT, slot)
        origin = _IN_TABLE[key >> schema.KEY_ORIGIN_SHIFT & schema.KEY_ORIGIN_MASK]
        return Storage(
            base=key & schema.KEY_ADDR_MASK,
            nbytes=size_thread & _SIZE_MASK,
            state="live",
            allocated=(allocated := self.clock.moment(epoch)),
            allocated_by=self._journal.site(site_id, where),
            allocated_thread=self._born_on(size_thread >> 48, allocated),
            order=(epoch, sequence),
            origin=origin,
            older=origin == schema.Origin.BEFORE_ENABLE.name,
        )

    def _freed(self) -> tuple[list[Part], set[int]]:
        parts, freed_keys = [], set[int]()
        for extent in self._box.regions(Region.FREED_STORAGES, _FREED.size):
            half = self._half(extent.first_thread, extent.declared_count)
            part = Part(lambda slot, extent=extent: self._freed_storage(self._box.item(extent, _FREED, slot)))  # type: ignore[misc]
            for slot, entry in enumerate(self._box.unpack(extent, _FREED)):
                order = entry[2]
                if order == 0:
                    self.torn_freed += any(entry)
                    continue
                if (order - 1) % half != slot % half or entry[0] + entry[1] > _ADDRESS_END:
                    self.torn_freed += 1
                    continue
                part.bases.append(entry[0])
                part.sizes.append(entry[1])
                part.slots.append(slot)
                freed_keys.add(_life_key(entry[0], entry[3], entry[10]))
                self._site_ids.update((entry[5], entry[7]))
            part.live = bytearray(len(part.slots))
            parts.append(part)
        return parts, freed_keys

    def _foreign(self) -> Iterator[Storage]:
        for state, _, life, _, offset, flags, _, file in self._external_slots:
            if state == schema.ExternalState.BUSY:
                self.busy_foreign += 1
            elif state in (schema.ExternalState.LIVE, schema.ExternalState.FREED):
                storage = self._either(_FREED.unpack(life), live=state == schema.ExternalState.LIVE)
                yield self._with_source(storage, offset, flags, file)

    def _with_source(self, storage: Storage, offset: int, flags: int, file: bytes) -> Storage:
        name = file.split(b"\0", 1)[0].decode("utf-8", "replace")
        if flags & _CUT:
            name = f"...{name}"
        older = bool(flags & _OLDER)
        return replace(storage, file=name or None, file_offset=offset if name else None, older=older)

    def _half(self, first_thread: int, items: int) -> int:
        for extent in self._box.regions(Region.THREADS, schema.THREAD.nbytes):
            if extent.first_thread == first_thread and extent.declared_count:
                return max(1, items // extent.declared_count // 2)
        return schema.FREED_PER_THREAD // 2

    def _freed_storage(self, entry: tuple[int, ...]) -> Storage:
        """A freed-storage entry as a storage."""
        base, nbytes, _, at, ft, ai, aw, fi, fw, ae, _, fe, fs, origin, foreign = entry
        site, moment, tid = self._journal.site, self.clock.moment, self._threads.tid
        return Storage(
            base=base,
            nbytes=nbytes,
            state="freed",
            allocated=(allocated := moment(ae)),
            allocated_by=site(ai, aw),
            allocated_thread=self._born_on(at, allocated),
            freed=moment(fe),
            freed_by=site(fi, fw),
            freed_thread=tid(ft),
            order=(fe, fs),
            origin=_NAMES.get(origin),
            older=origin == schema.Origin.BEFORE_ENABLE,
            foreign=foreign != 0,
        )

    def hit(self, entry: bytes, live: bool) -> Storage:
        """The storage of a StorageHit; of a live one only the allocation is set."""
        values = _FREED.unpack_from(entry)
        storage = self._either(values, live)
        slot = values[-1] - 1
        if 0 <= slot < len(self._external_slots):
            _, _, life, _, offset, flags, _, file = self._external_slots[slot]
            if _FREED.unpack(life)[:11] == values[:11]:  # else the slot has another storage by now
                return self._with_source(storage, offset, flags, file)
        return storage

    def _either(self, values: tuple[int, ...], live: bool) -> Storage:
        if not live:
            return self._freed_storage(values)
        base, nbytes, _, at, _, ai, aw, _, _, ae, sequence, _, _, origin, foreign = values
        return Storage(
            base=base,
            nbytes=nbytes,
            state="live",
            allocated=(allocated := self.clock.moment(ae)),
            allocated_by=self._journal.site(ai, aw),
            allocated_thread=self._born_on(at, allocated),
            order=(ae, sequence),
            origin=_NAMES.get(origin),
            older=origin == schema.Origin.BEFORE_ENABLE,
            foreign=foreign != 0,
        )
