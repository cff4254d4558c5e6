"""The access that a device objected to, as computed from its core dump: what was read or written, and what lies there.

Each thread of a warp accesses an address of its own. The exception is explained by one that is not a multiple of the
width, or in memory that torch has not from the driver.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pytracer._text import hex_addr, size_words
from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.device_memory import block_words, device_words
from pytracer.analyze.address_space.lookup import AddressSpace
from pytracer.analyze.address_space.neighbors import covers
from pytracer.decode.types.devices import GpuException, GpuThread
from pytracer.decode.types.snapshot import Storage

FOUND = "computed from the instruction and the registers"
_PAST = {"read": "read", "write": "wrote", "update": "updated"}
_MISALIGNED, _ILLEGAL = frozenset({6, 11}), frozenset({1, 5, 7, 10, 14})  # codes of devices.EXCEPTIONS


class DeviceAccess(msgspec.Struct, frozen=True):
    """One thread's access that explains an exception. `last_addr`: with `addr`, the range in which one of them lay."""

    kind: str
    nbytes: int
    thread: GpuThread
    place: Place
    misaligned: bool
    last_addr: int | None = None
    beside: Storage | None = None

    @property
    def addr(self) -> int:
        """Where it was."""
        return self.thread.addr

    @property
    def verb(self) -> str:
        """`read`, `wrote` or `updated`."""
        return _PAST[self.kind]

    @property
    def what(self) -> str:
        """`wrote 4 bytes`."""
        return f"{self.verb} {self.nbytes} byte{'s' if self.nbytes != 1 else ''}"


def explaining_access(space: AddressSpace, item: GpuException) -> DeviceAccess | None:
    """The first access that explains an exception; None without one, or if that cannot be decided."""
    access = item.access
    if access is None or item.code not in _MISALIGNED | _ILLEGAL:
        return None
    misaligned = item.code in _MISALIGNED
    if not misaligned and not space.snapshot.segments:
        return None  # what torch has from the driver is not known
    bad: Callable[[int], bool] = (
        (lambda addr: addr % access.nbytes != 0) if misaligned else (lambda addr: _outside(space, addr, access.nbytes))
    )
    explaining = [thread for thread in access.threads if bad(thread.addr)]
    if not explaining:
        return None
    first, last = explaining[0], None
    place = space.describe(first.addr)
    if access.guarded:  # some of the threads may not have made it
        ends = space.describe(min(t.addr for t in explaining)), space.describe(max(t.addr for t in explaining))
        if len(explaining) < len(access.threads) or len({(p.kind, p.storage) for p in ends}) > 1:
            return None
        place, last = ends[0], ends[1].addr
        first = min(explaining, key=lambda thread: thread.addr)
    beside = _beside(space, first.addr) if place.kind != "device-memory" else None
    return DeviceAccess(access.kind, access.nbytes, first, place, misaligned, last, beside)


def access_words(access: DeviceAccess) -> str:
    """`read 16 bytes at 0x7f87cbe00804, which is not a multiple of 16; 2052 bytes into a live block of ...`."""
    at = f"{access.what} at {hex_addr(access.addr)}"
    if access.last_addr not in (None, access.addr):
        at = f"{access.what} at an address from {hex_addr(access.addr)} to {hex_addr(access.last_addr or 0)}"
    where = _where_words(access)
    if access.misaligned:
        return f"{at}, which is not a multiple of {access.nbytes}; it is {where}"
    return f"{at}, {where}"


def headline_words(access: DeviceAccess) -> str:
    """`which wrote 4 bytes of a freed block of 2.0 MiB on cuda:0`, behind the name of the kernel."""
    if access.misaligned:
        return f"which {access.what} at an address that is not a multiple of {access.nbytes}"
    storage = access.place.storage
    if storage is not None and access.place.kind == "device-memory" and storage.state != "live":
        return f"which {access.what} of {block_words(storage, access.place.names)}"
    return f"which {access.what} {_where_words(access)}"


def _where_words(access: DeviceAccess) -> str:
    place, beside = access.place, access.beside
    if place.kind in ("null", "near-null"):
        return "close to the null pointer"
    words = device_words(place) if place.kind == "device-memory" else None
    if words is not None and place.storage is None:
        return f"in {words}"
    if words is not None and place.storage is not None:
        reaches = place.storage.state == "live" and not access.misaligned
        return f"{words}, beyond whose end it reaches" if reaches else words
    if beside is not None:
        block = block_words(beside)
        if access.addr < beside.base:
            return f"{size_words(beside.base - access.addr)} before {block}"
        behind = access.addr - beside.base - beside.nbytes
        return f"{size_words(behind)} behind the end of {block}" if behind else f"right behind the end of {block}"
    return "where torch's allocator has no memory"


def _outside(space: AddressSpace, addr: int, nbytes: int) -> bool:
    """Whether torch has not all of the bytes from the driver. A block that it keeps for later is no illegal address."""
    owned = [item for item in space.snapshot.segments if item.live and item.base <= addr < item.base + item.nbytes]
    if owned:
        return addr + nbytes > max(item.base + item.nbytes for item in owned)
    storage = space.live_around(addr)
    return storage is None or storage.device == "cpu" or not covers(storage, addr + nbytes - 1)


def _beside(space: AddressSpace, addr: int) -> Storage | None:
    """The live block of a device that an address missed by little."""
    near = [item for item in space.neighbors.nearest_live(addr).values() if item.device != "cpu"]
    return next((item for item in near if item.base < addr), near[0] if near else None)
