"""Whether the host's memory at an address was one tensor's from one use of it to another.

torch's allocator of pinned memory hands a freed block out again as soon as all copies of it are over: where it may have
done so, an address says nothing. Storages have coarse times only.
"""

from __future__ import annotations

from bisect import bisect_left

from pytracer.analyze.evidence.cuda.launches import Launch, with_launches
from pytracer.analyze.view import ProcessView
from pytracer.blackbox.schema import FREED_PER_THREAD
from pytracer.decode.types.snapshot import Storage

_PINS = frozenset({"pin_memory", "_pin_memory", "_to_copy", "zeros", "ones", "full", "tensor"})


class HostMemory:
    """Of one process."""

    def __init__(self, view: ProcessView) -> None:
        snapshot = view.process.snapshot
        self._storages = snapshot.storages
        self._all_freed = snapshot.counts.get("freed_storages", 0) < FREED_PER_THREAD // 2  # none was overwritten
        launches = (launch for _, launch in with_launches(snapshot.events) if launch is not None)
        self._allocations = sorted(item.mono_ns for item in launches if _may_pin(item))

    def is_one_tensor(self, addr: int, earlier: Launch, later: Launch) -> bool:
        """Whether the storage of the earlier use is surely that of the later one."""
        after = bisect_left(self._allocations, earlier.mono_ns + 1)
        if bisect_left(self._allocations, later.mono_ns) == after:
            return True
        lives = self._storages.at(addr)
        if len(lives) == 1 and self._all_freed:
            return True
        return any(_covers(item, earlier.mono_ns, later.mono_ns) for item in lives)


def _may_pin(launch: Launch) -> bool:
    return launch.operator.startswith(("empty", "new_")) or launch.operator in _PINS


def _covers(storage: Storage, begin: int, end: int) -> bool:
    born, freed = storage.allocated.ended_ns, storage.freed
    if born is None or born > begin:
        return False
    return freed is None or (freed.mono_ns is not None and freed.mono_ns >= end)
