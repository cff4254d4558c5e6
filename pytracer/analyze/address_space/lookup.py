"""Address -> what lived there, and when.

Storages come from the crash handler's own search first (other threads may have changed the table since), else from
the tables of the recording. `tensors/uses.py` finds the names of a storage.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from msgspec import structs

from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.guard_pool import FOUND, guarded_at, pool_of
from pytracer.analyze.address_space.neighbors import Neighbors, covers, distance_to
from pytracer.analyze.address_space.overlapping import meant_of
from pytracer.analyze.address_space.references import Holders
from pytracer.analyze.address_space.regions import NEAR_NULL_BYTES, Regions, mapping_at
from pytracer.analyze.platform.addresses import exists, without_tag
from pytracer.analyze.tensors.origins import is_borrowed
from pytracer.analyze.tensors.uses import StorageUses
from pytracer.decode.types.devices import DeviceSegment
from pytracer.decode.types.snapshot import Crash, Mapping, Snapshot, Storage

STACK_GUARD_BYTES = 64 * 1024
SEGV_MAPERR = 1
GUESSED = "guessed"  # Place.found: the nearest one, or what the tables have now
ONE_ACCESS_BYTES = 64  # the widest load
_SHARED_ANONYMOUS = "/dev/zero"  # how Linux names memory without a file that a child may share: CUDA pins such


class AddressSpace:
    """The address space of one process: what lay at an address, near it, before it, and what it was used for.

    Created once for a process; its indices are built on demand.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    @cached_property
    def uses(self) -> StorageUses:
        """What its storages were used for."""
        return StorageUses(self.snapshot)

    @cached_property
    def regions(self) -> Regions:
        """Stacks, images, files, heap."""
        return Regions(self.snapshot)

    @cached_property
    def neighbors(self) -> Neighbors:
        """Its storages, by their neighbours."""
        return Neighbors(self.snapshot, self.uses)

    @cached_property
    def holders(self) -> Holders:
        """The variables that held its storages."""
        return Holders(self.snapshot)

    def describe(self, addr: int) -> Place:
        """What lived at `addr` when the process died, or at the end of the recording."""
        crash, addr = self.snapshot.crash, without_tag(self.snapshot.arch, addr)
        mapping = mapping_at(crash.mappings, addr) if crash else None
        if addr < NEAR_NULL_BYTES:
            return Place(addr, "null" if addr == 0 else "near-null", mapping=mapping)
        if not exists(self.snapshot.arch, addr):
            return Place(addr, "non-canonical")
        if pool_of(self.snapshot.guard, addr) is not None:
            return self._in_guard_pool(addr, mapping)
        live, freed = self._covering(addr, "live"), self._covering(addr, "freed")
        segment = _segment_at(self.snapshot.segments, addr)
        block = next((hit for hit in (live, freed) if hit is not None and hit[0].device != "cpu"), None)
        if block is not None:
            return structs.replace(self._in_storage(addr, "device-memory", block, mapping), segment=segment)
        if segment is not None:
            return Place(addr, "device-memory", mapping=mapping, segment=segment)
        if live is not None:
            return self._in_storage(addr, "in-storage", live, mapping)
        if crash is not None and _is_stack_guard(crash, addr, mapping):
            return Place(addr, "stack-guard", mapping=mapping)
        named = mapping is not None and mapping.path != "" and not mapping.path.startswith(_SHARED_ANONYMOUS)
        if freed is not None and mapping is not None and is_borrowed(freed[0]):
            freed = None  # the memory is there: its owner has kept it, and may use it
        if freed is None:
            freed = self.uses.ddp.forgotten(addr)
        if freed is not None and not named:
            return self._in_storage(addr, "freed-storage", freed, mapping)
        if mapping is None or (not named and not mapping.permissions.startswith(("r", "-w", "--x"))):
            beside = self.neighbors.nearest_live(addr).values()
            if beside and not _was_unmapped(crash, addr, mapping):
                nearest = min(beside, key=lambda item: distance_to(item, addr))
                kind = "before-storage" if addr < nearest.base else "past-storage"
                return self._in_storage(addr, kind, (nearest, GUESSED), mapping)
        return self._of_mapping(addr, mapping)

    def without_storage(self, place: Place) -> Place:
        """The same address by its mapping alone: the storage beside it was not meant."""
        return self._of_mapping(place.addr, place.mapping)

    def _of_mapping(self, addr: int, mapping: Mapping | None) -> Place:
        region = self.regions.at(addr)
        on_stack = region is not None and region.kind == "stack"
        return Place(addr, "stack" if on_stack else _mapping_kind(self.snapshot.crash, mapping), mapping=mapping)

    def _in_guard_pool(self, addr: int, mapping: Mapping | None) -> Place:
        """Pages there belong to one storage each, and to none for a long time after it was freed."""
        hit = guarded_at(self.snapshot.guard, addr)
        if hit is None:
            return Place(addr, "unmapped", mapping=mapping)
        storage, kind = hit
        return self._in_storage(addr, kind, (storage, FOUND), mapping)

    def _in_storage(self, addr: int, kind: str, hit: tuple[Storage, str], mapping: Mapping | None) -> Place:
        storage, found = hit
        distance = distance_to(storage, addr)
        bucket, names = self.uses.names_of(storage, addr)
        earlier = self._earlier_names(storage, addr) if distance == 0 else ()
        unit = self.uses.fsdp.of_storage(storage, addr)
        rivals = self._rivals(storage, addr) if kind == "in-storage" else ()
        names = tuple(dict.fromkeys((*names, *(name for item in rivals for name in self.uses.names_of(item, addr)[1]))))
        return Place(
            addr,
            kind,
            storage,
            addr - storage.base,
            distance,
            found,
            bucket,
            names,
            mapping,
            earlier,
            unit=unit,
            rivals=rivals,
        )

    def _rivals(self, storage: Storage, addr: int) -> tuple[Storage, ...]:
        """Other living storages that the access may just as well have been meant for."""
        return tuple(item for item in self.meant_at(addr) if item != storage) if is_borrowed(storage) else ()

    def meant_at(self, addr: int) -> list[Storage]:
        """The living storages around an address that the running call can have been given."""
        return meant_of(self.snapshot, self._living(addr))

    def _living(self, addr: int) -> list[Storage]:
        """All living storages around an address: of memory of others there may be several."""
        return [item for item in self.snapshot.storages.around(addr) if item.state == "live" and covers(item, addr)]

    def _earlier_names(self, storage: Storage, addr: int) -> tuple[str, ...]:
        names: dict[str, None] = {}
        for life in self.neighbors.before(addr, storage):
            if life.state == "live":
                continue  # it has the memory still
            names.update(dict.fromkeys(self.uses.names_of(life, addr)[1][:1]))
        return tuple(names)

    def _covering(self, addr: int, state: str) -> tuple[Storage, str] | None:
        """The most recent storage of that state around `addr`, and whether the handler itself found it."""
        hits = [
            hit.storage for hit in (self.snapshot.crash.hits if self.snapshot.crash else ()) if hit.kind == "covering"
        ]
        for candidates, found in ((hits, "exact"), (self.snapshot.storages.around(addr), GUESSED)):
            matching = [item for item in candidates if item.state == state and covers(item, addr)]
            if matching:
                matching = self._chosen(matching, addr) if state == "live" else matching
                last = max(matching, key=lambda item: (state == "live" and not is_borrowed(item), item.order))
                # Blocks of devices are known as they were at the crash (decode/recording/devices.py).
                return last, "exact" if last.device != "cpu" and self.snapshot.crash is not None else found
        return None

    def _chosen(self, matching: list[Storage], addr: int) -> list[Storage]:
        """The living storages that were meant; where the handler's is one of several of others' memory, by the call."""
        living = self._living(addr)
        if len(living) < 2 or not all(is_borrowed(item) for item in (*matching, *living)):
            return matching
        meant = meant_of(self.snapshot, living)
        return [item for item in matching if item in meant] or meant

    def live_around(self, addr: int) -> Storage | None:
        """The live storage that contains an address."""
        addr = without_tag(self.snapshot.arch, addr)
        living = self._living(addr)
        if len(living) > 1:
            living = [item for item in living if item.base == addr] or living
            living = meant_of(self.snapshot, living)
        return next(iter(living), None)


def _was_unmapped(crash: Crash | None, addr: int, mapping: Mapping | None) -> bool:
    """Memory of others lies beside storages, too. At the first byte of a hole, a loop may have run off a storage."""
    if crash is None or crash.unmapping is None or mapping is not None or addr != crash.fault_addr:
        return False
    return addr - crash.unmapping.addr >= ONE_ACCESS_BYTES


def _segment_at(segments: Iterable[DeviceSegment], addr: int) -> DeviceSegment | None:
    """The memory of a device's allocator around an address: what it still has, else what it gave back last."""
    found = [item for item in segments if item.base <= addr < item.base + item.nbytes]
    return max(found, key=lambda item: (item.live, item.order), default=None)


def _is_stack_guard(crash: Crash, addr: int, mapping: Mapping | None) -> bool:
    if crash.stack is None:
        return False
    low = crash.stack[0]
    if low - STACK_GUARD_BYTES <= addr < low:
        return mapping is None or "r" not in mapping.permissions
    # The main thread's stack grows on demand: its end is where the kernel refuses, close to the stack pointer.
    return low <= addr < crash.stack[1] and abs(addr - crash.sp) <= STACK_GUARD_BYTES and mapping is None


def _mapping_kind(crash: Crash | None, mapping: Mapping | None) -> str:
    if mapping is None:
        known = crash is not None and (bool(crash.mappings) or (crash.signal == 11 and crash.code == SEGV_MAPERR))
        return "unmapped" if known else "none"
    if mapping.path.startswith("/dev/nvidia"):
        return "device-memory"
    if mapping.path.startswith("/"):
        mappings = crash.mappings if crash else ()
        return (
            "image"
            if any("x" in item.permissions for item in mappings if item.path == mapping.path)
            else "file-mapping"
        )
    return "heap" if mapping.path in ("", "[heap]") else "none"
