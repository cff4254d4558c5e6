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


class TensorNames:
    """The names that one process recorded, by the storages that they were seen in."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def of_storage(self, storage: Storage, addr: int) -> tuple[list[NamedTensor], list[NamedTensor]]:
        """The names of one life of a storage: those of what lies at `addr`, and the others; each name once."""
        here: dict[str, NamedTensor] = {}
        others: dict[str, NamedTensor] = {}
        for item in sorted(self._of_life(storage), key=_by_role):
            (here if _covers(item, storage, addr) else others).setdefault(item.name, item)
        return list(here.values()), [item for name, item in others.items() if name not in here]

    def with_name(self, name: str) -> list[NamedTensor]:
        """All storages that the tensor of this name had, as far as they are known."""
        return [item for items in self._snapshot.named.values() for item in items if item.name == name]

    def report(self, storage: Storage, addr: int) -> list[r.NamedTensor]:
        """The same for the report."""
        here, others = self.of_storage(storage, addr)
        last = max(
            (i.epoch for items in self._snapshot.named.values() for i in items if i.role in _LOOKED_AT), default=0
        )
        looked = self._snapshot.crash is not None and "NAMES" in self._snapshot.crash.steps_done
        return [
            r.NamedTensor(
                name=item.name,
                role=item.role,
                offset_bytes=addr - item.addr if item in here else None,
                how="handler" if looked and item.role in _LOOKED_AT and item.epoch == last else "recorded",
            )
            for item in [*here, *others][:MOST_NAMES]
        ]

    def _of_life(self, storage: Storage) -> Iterator[NamedTensor]:
        for item in self._snapshot.named.get(storage.base, ()):
            if lived_at(storage, item.epoch):
                yield item


def _by_role(item: NamedTensor) -> tuple[bool, int, int]:
    return item.earlier, _ORDER.index(item.role) if item.role in _ORDER else len(_ORDER), item.addr


def _covers(item: NamedTensor, storage: Storage, addr: int) -> bool:
    """Past the end or before the beginning, what lies there is what the address belongs to."""
    inside = min(max(addr, storage.base), storage.base + max(storage.nbytes, 1) - 1)
    return item.addr <= inside < item.addr + max(item.nbytes, 1)
