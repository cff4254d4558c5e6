"""What a storage was called, by recorded names: parameters, buffers, gradients, optimizer state, the user's own.

A name counts for the life of the storage in which it was seen. The crash handler looked once more where all named
tensors lay; before that it was noted when they were registered, moved or loaded, and after steps of the optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator

from pytracer.analyze.tensors.journal import lived_at
from pytracer.decode.types.snapshot import NamedTensor, Snapshot, Storage
from pytracer.report import job as r

_ORDER = ("user", "parameter", "buffer", "optimizer state", "gradient")
_LOOKED_AT = ("parameter", "buffer", "gradient")  # by the handler; the others stay where they were noted
MOST_NAMES = 64


def named_tensors(snapshot: Snapshot, storage: Storage, addr: int) -> tuple[list[NamedTensor], list[NamedTensor]]:
    """The names of one life of a storage: those of what lies at `addr`, and the others; each name once."""
    here: dict[str, NamedTensor] = {}
    others: dict[str, NamedTensor] = {}
    for item in sorted(_of_life(snapshot, storage), key=_by_role):
        (here if _covers(item, storage, addr) else others).setdefault(item.name, item)
    return list(here.values()), [item for name, item in others.items() if name not in here]


def named_with(snapshot: Snapshot, name: str) -> list[NamedTensor]:
    """All storages that the tensor of this name had, as far as they are known."""
    return [item for items in snapshot.named.values() for item in items if item.name == name]


def named_report(snapshot: Snapshot, storage: Storage, addr: int) -> list[r.NamedTensor]:
    """The same for the report."""
    here, others = named_tensors(snapshot, storage, addr)
    last = max((i.epoch for items in snapshot.named.values() for i in items if i.role in _LOOKED_AT), default=0)
    looked = snapshot.crash is not None and "NAMES" in snapshot.crash.steps_done
    return [
        r.NamedTensor(
            name=item.name,
            role=item.role,
            offset_bytes=addr - item.addr if item in here else None,
            how="handler" if looked and item.role in _LOOKED_AT and item.epoch == last else "recorded",
        )
        for item in [*here, *others][:MOST_NAMES]
    ]


def _of_life(snapshot: Snapshot, storage: Storage) -> Iterator[NamedTensor]:
    for item in snapshot.named.get(storage.base, ()):
        if lived_at(storage, item.epoch):
            yield item


def _by_role(item: NamedTensor) -> tuple[bool, int, int]:
    return item.earlier, _ORDER.index(item.role) if item.role in _ORDER else len(_ORDER), item.addr


def _covers(item: NamedTensor, storage: Storage, addr: int) -> bool:
    """Past the end or before the beginning, what lies there is what the address belongs to."""
    inside = min(max(addr, storage.base), storage.base + max(storage.nbytes, 1) - 1)
    return item.addr <= inside < item.addr + max(item.nbytes, 1)
