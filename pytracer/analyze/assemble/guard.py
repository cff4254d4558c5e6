"""Guard mode in the report: what it counted, what it found damaged, what it could not do."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._text import count_words, hex_addr, size_words
from pytracer.analyze.parts import StorageReports
from pytracer.decode.types.snapshot import Guard, Guarded
from pytracer.report import job as r

_REASONS = {
    "refused_bytes": "the budget of bytes",
    "refused_mappings": "the budget of mappings",
    "refused_records": "the room for records",
    "refused_system": "the kernel",
}


def guard_report(guard: Guard | None, storages: StorageReports) -> r.GuardReport | None:
    """What guard mode did in one process."""
    if guard is None:
        return None
    counts = guard.counts
    return r.GuardReport(
        mechanism=guard.mechanism,
        every=guard.every,
        min_bytes=guard.min_bytes,
        alignment=guard.alignment,
        side="underrun" if guard.underrun else "overrun",
        guarded=counts["guarded"],
        live=counts["live"],
        quarantined=counts["quarantined"],
        most_bytes=counts["most_bytes"],
        budget_bytes=guard.budget_bytes,
        budget_mappings=guard.budget_mappings,
        unguarded={name.removeprefix("refused_"): counts[name] for name in _REASONS},
        not_quarantined=counts["unsealed"],
        damaged=[_damage_report(item, storages) for item in guard.damaged],
    )


def _damage_report(item: Guarded, storages: StorageReports) -> r.GuardDamage:
    storage, damage = item.storage, item.damage
    allocated, freed = storages.life(storage)
    return r.GuardDamage(
        base=hex_addr(storage.base),
        nbytes=storage.nbytes,
        side=damage.side if damage else None,
        offset_bytes=damage.offset if damage else None,
        changed_bytes=damage.nbytes if damage else None,
        content=damage.content.hex() if damage else None,
        found=storages.clock.relative(damage.found_ns) if damage else None,
        allocated=allocated,
        freed=freed,
    )


def guard_notes(guard: Guard | None) -> Sequence[str]:
    """What guard mode could not check: a report without a finding must state it."""
    if guard is None:
        return ()
    notes = []
    for name, reason in _REASONS.items():
        if guard.counts[name]:
            what = count_words(guard.counts[name], "storage")
            verb = "refused" if name == "refused_system" else "was used up"
            notes.append(f"guard mode: {what} went unguarded: {reason} {verb}{_budget(guard, name)}")
    if guard.counts["unsealed"]:
        what = count_words(guard.counts["unsealed"], "freed storage")
        notes.append(f"guard mode: the kernel would not close the pages of {what}: its use goes unnoticed there")
    return notes


def _budget(guard: Guard, name: str) -> str:
    if name == "refused_bytes":
        return f" ({size_words(guard.budget_bytes)})"
    if name == "refused_mappings":
        return f" ({guard.budget_mappings})"
    return ""
