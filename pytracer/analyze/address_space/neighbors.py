"""What lay beside an address, and before it at the same address."""

from __future__ import annotations

from collections.abc import Iterator

from pytracer.analyze.address_space.address_info import Neighbor
from pytracer.analyze.tensors.uses import StorageUses
from pytracer.decode.types.snapshot import Snapshot, Storage

NEARBY_BYTES = 64 * 1024


def covers(storage: Storage, addr: int) -> bool:
    """Whether the address lies inside the storage."""
    return storage.base <= addr < storage.base + storage.nbytes


def distance_to(storage: Storage, addr: int) -> int:
    """Bytes from the address to the storage's first or last byte, whichever is nearer; 0 inside, 1 right beside it."""
    if addr < storage.base:
        return storage.base - addr
    return max(addr - storage.base - storage.nbytes + 1, 0)


def is_near(storage: Storage, addr: int) -> bool:
    """Whether an access that missed the storage may have been meant for it: 64 KiB, or its own size if that is more."""
    return distance_to(storage, addr) <= max(NEARBY_BYTES, storage.nbytes)


class Neighbors:
    """The storages of one process, by their neighbours."""

    def __init__(self, snapshot: Snapshot, uses: StorageUses) -> None:
        self._snapshot, self._uses = snapshot, uses

    def nearest_live(self, addr: int) -> dict[str, Storage]:
        """The nearest live storage "below" the address and "above" it, unless they are far; none that covers it."""
        best: dict[str, Storage] = {}
        hits = (hit.storage for hit in (self._snapshot.crash.hits if self._snapshot.crash else ()))
        for item in (*hits, *self._snapshot.storages.live_beside(addr)):
            if item.state != "live" or covers(item, addr) or not is_near(item, addr):
                continue
            side = "above" if addr < item.base else "below"
            if side not in best or distance_to(item, addr) < distance_to(best[side], addr):
                best[side] = item
        return best

    def beside(self, addr: int) -> tuple[Neighbor, ...]:
        """The nearest live storages on both sides, with their names."""
        best = self.nearest_live(addr)
        sides = [(side, best[side]) for side in ("below", "above") if side in best]
        return tuple(
            Neighbor(side, distance_to(item, addr), item, self._uses.names_of(item, item.base)[1])
            for side, item in sides
        )

    def before(self, addr: int, last: Storage | None) -> tuple[Storage, ...]:
        """The storages that lay around the address before `last` did, the latest first; all of them without it."""
        lives = {item for item in self._around(addr) if covers(item, addr) and item != last}
        if last is not None and covers(last, addr):
            lives = {item for item in lives if item.order < last.order}
        return tuple(sorted(lives, key=lambda item: item.order, reverse=True))

    def _around(self, addr: int) -> Iterator[Storage]:
        """What the crash handler found at once, then the tables."""
        if self._snapshot.crash is not None:
            yield from (hit.storage for hit in self._snapshot.crash.hits)
        yield from self._snapshot.storages.around(addr)
