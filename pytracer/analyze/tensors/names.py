"""Recorded names of a storage: parameters, buffers, gradients, optimizer state, names given by the user.

A name applies to the storage in which it was read. The crash handler read the addresses of all named tensors once more;
before, they were recorded when tensors were registered, moved or loaded, and after optimizer steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import chain

from pytracer.analyze.tensors.journal import lived_at
from pytracer.decode.types.snapshot import NamedTensor, Snapshot, Storage
from pytracer.report import job as r

_ORDER = ("user", "parameter", "buffer", "optimizer state", "gradient")
_LOOKED_AT = ("parameter", "buffer", "gradient")  # read by the handler; the others as last recorded
MOST_NAMES = 64


class TensorNames:
    """The names that one process recorded, by the storages that they were seen in."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def of_storage(self, storage: Storage, addr: int) -> tuple[list[NamedTensor], list[NamedTensor]]:
        """The names of one storage: those of the tensor at `addr`, and the others; each name once."""
        here: dict[str, NamedTensor] = {}
        others: dict[str, NamedTensor] = {}
        for item in sorted(self._of_life(storage), key=_by_role):
            (here if _covers(item, storage, addr) else others).setdefault(item.name, item)
        return list(here.values()), [item for name, item in others.items() if name not in here]

    def with_name(self, name: str) -> list[NamedTensor]:
        """All storages that the tensor of this name had, as far as they are known."""
        return self._by_name.get(name, [])

    def report(self, storage: Storage, addr: int) -> list[r.NamedTensor]:
        """The same for the report."""
        here, others = self.of_storage(storage, addr)
        looked = self._snapshot.crash is not None and "NAMES" in self._snapshot.crash.steps_done
        return [
            r.NamedTensor(
                name=item.name,
                role=item.role,
                offset_bytes=addr - item.addr if item in here else None,
                how="handler" if looked and item.role in _LOOKED_AT and item.epoch == self._last_epoch else "recorded",
            )
            for item in [*here, *others][:MOST_NAMES]
        ]

    @cached_property
    def _by_name(self) -> dict[str, list[NamedTensor]]:
        found: dict[str, list[NamedTensor]] = {}
        for item in chain.from_iterable(self._snapshot.named.values()):
            found.setdefault(item.name, []).append(item)
        return found

    @cached_property
    def _last_epoch(self) -> int:
        """When the names were read last."""
        items = chain.from_iterable(self._snapshot.named.values())
        return max((item.epoch for item in items if item.role in _LOOKED_AT), default=0)

    def _of_life(self, storage: Storage) -> Iterator[NamedTensor]:
        named = self._snapshot.named.get(storage.base, ())
        several = len({item.name for item in named}) > 1 and len(self._living_at(storage.base)) > 1
        for item in named:
            if several and item.addr + item.nbytes > storage.base + storage.nbytes:
                continue  # of a larger one that has the same address
            if lived_at(storage, item.epoch):
                yield item

    def _living_at(self, base: int) -> list[Storage]:
        return [item for item in self._snapshot.storages.at(base) if item.state == "live"]


def _by_role(item: NamedTensor) -> tuple[bool, int, int]:
    return item.earlier, _ORDER.index(item.role) if item.role in _ORDER else len(_ORDER), item.addr


def _covers(item: NamedTensor, storage: Storage, addr: int) -> bool:
    """Past the end or before the beginning, the address belongs to the tensor there."""
    inside = min(max(addr, storage.base), storage.base + max(storage.nbytes, 1) - 1)
    return item.addr <= inside < item.addr + max(item.nbytes, 1)
