"""What an address in the pool of guard mode was: the pages there belong to one storage each, so the answer is exact.

An access inside a quarantined storage is a use after free; one in a guard, or in what a storage leaves free of its
pages, is out of bounds by a distance that is known to the byte. What can still be wrong: an index so large that it
leads over the guard, into the quarantine of another storage. Then a register of the instruction often points into the
one that was meant (`operands.py`).
"""

from __future__ import annotations

from pytracer.analyze.address_space.neighbors import covers, distance_to, is_near
from pytracer.decode.types.snapshot import Guard, Storage

FOUND = "guard"


def pool_of(guard: Guard | None, addr: int) -> tuple[int, int] | None:
    """The address range around `addr` that is reserved for guard mode."""
    return next((pool for pool in guard.pools if pool[0] <= addr < pool[1]), None) if guard is not None else None


def guarded_at(guard: Guard | None, addr: int) -> tuple[Storage, str] | None:
    """The storage whose pages or guard contain `addr`, and the kind of place; None if none is close."""
    guarded = guard.storages if guard is not None else ()
    # Of storages that used the same pages one after the other, the last.
    inside = [item for item in guarded if item.low <= addr < item.high]
    if inside:
        storage = max(inside, key=lambda item: item.number).storage
        return storage, _kind(storage, addr)
    near = [item for item in guarded if is_near(item.storage, addr)]
    if not near:
        return None
    storage = min(near, key=lambda item: (distance_to(item.storage, addr), -item.number)).storage
    return storage, _kind(storage, addr)


def _kind(storage: Storage, addr: int) -> str:
    if covers(storage, addr):
        return "in-storage" if storage.state == "live" else "freed-storage"
    return "before-storage" if addr < storage.base else "past-storage"
