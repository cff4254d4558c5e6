"""Guard mode: settings and counters, guarded storages, damage beside them."""

from __future__ import annotations

from collections.abc import Iterator

from pytracer.blackbox import schema
from pytracer.blackbox import structures as raw
from pytracer.blackbox.codec import decode
from pytracer.blackbox.schema import Entry, GuardedState, GuardMechanism, Region
from pytracer.decode.recording.file import BoxFile
from pytracer.decode.recording.journal import Journal
from pytracer.decode.recording.storages import Clock
from pytracer.decode.types.snapshot import Guard, GuardDamage, Guarded, GuardMechanismName, GuardSide, Moment, Storage

_MECHANISMS: dict[int, GuardMechanismName] = {
    GuardMechanism.MARKERS: "markers",
    GuardMechanism.PROTECTION: "protection",
}
_SIDES: dict[int, GuardSide] = {1: "behind", 2: "before"}
_COUNTERS = (
    *("guarded", "quarantined", "live", "live_bytes", "most_bytes", "mappings", "unsealed"),
    *("refused_bytes", "refused_mappings", "refused_records", "refused_system"),
)


def read_guard(box: BoxFile, journal: Journal, clock: Clock) -> Guard | None:
    """Guard mode of this process; None when it was never on."""
    head = next(box.items(Region.GUARD, raw.GuardRegion, 1), None) if box.region(Region.GUARD) else None
    if head is None or not head.small_high:
        return None
    return Guard(
        armed=bool(head.armed),
        mechanism=_MECHANISMS.get(head.mechanism),
        every=head.every,
        min_bytes=head.min_bytes,
        alignment=head.alignment,
        underrun=bool(head.underrun),
        budget_bytes=head.budget_bytes,
        budget_mappings=head.budget_mappings,
        fallback_errno=head.fallback_errno if head.fallback_errno > 0 else None,
        pools=((head.small_low, head.small_high), (head.large_low, head.large_high)),
        counts={name: getattr(head, name) for name in _COUNTERS},
        storages=tuple(_storages(box, journal, clock)),
        damaged=tuple(_damaged(box, journal, clock)),
    )


def _storages(box: BoxFile, journal: Journal, clock: Clock) -> Iterator[Guarded]:
    for extent in box.regions(Region.GUARDED, schema.GUARDED_STORAGE.nbytes):
        content = box.content(extent)
        for at in range(0, extent.item_count * extent.item_bytes, extent.item_bytes):
            if any(content[at : at + 8]):  # most have never been used
                record = decode(raw.GuardedStorage, content, at)
                if record.state in (GuardedState.LIVE, GuardedState.QUARANTINED):
                    yield _guarded(record, journal, clock)


def _damaged(box: BoxFile, journal: Journal, clock: Clock) -> Iterator[Guarded]:
    """In the order in which it was found; a forked child's journal begins with its parent's."""
    for entry in journal.entries.values():
        if entry.kind != Entry.GUARD_DAMAGE or entry.mono_ns < box.header.created_mono_ns:
            continue
        if len(entry.payload) >= schema.GUARDED_STORAGE.nbytes:
            yield _guarded(decode(raw.GuardedStorage, entry.payload), journal, clock, found_ns=entry.mono_ns)


def _guarded(record: raw.GuardedStorage, journal: Journal, clock: Clock, found_ns: int | None = None) -> Guarded:
    freed = record.state == GuardedState.QUARANTINED
    epoch = record.free_epoch if freed else record.alloc_epoch
    storage = Storage(
        base=record.base,
        nbytes=record.nbytes,
        state="freed" if freed else "live",
        allocated=_moment(clock, record.alloc_epoch, record.allocated_ns),
        allocated_by=journal.site(record.alloc_site_id, record.alloc_site_where),
        allocated_thread=record.alloc_tid,
        freed=_moment(clock, epoch, record.freed_ns) if freed else None,
        freed_by=journal.site(record.free_site_id, record.free_site_where) if freed else None,
        freed_thread=record.free_tid if freed else None,
        order=(epoch, record.number),
    )
    side = _SIDES.get(record.damage_side)
    damage = None
    if side is not None:
        changed = record.damage_bytes[: record.damage_nbytes]
        damage = GuardDamage(side, record.damage_offset, record.damage_nbytes, changed, found_ns)
    return Guarded(storage, record.low, record.high, record.number, damage)


def _moment(clock: Clock, epoch: int, mono_ns: int) -> Moment:
    """Sharper than an epoch: guarded storages carry the time itself."""
    return Moment(epoch, mono_ns or None, clock.moment(epoch).step)
