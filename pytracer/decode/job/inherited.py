"""What a forked process has from its parent and does not record: storages that the parent had freed before.

The tables of a copy begin anew, but for what was alive. A use of memory that had been freed before fork() is told from
the parent's recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytracer.decode.types.snapshot import Crash, Snapshot, Storage


def with_inherited_frees(snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """The recordings; those of forked processes that crashed with what lay at the fault address before they began."""
    return [_completed(item, item.crash, snapshots) if item.crash is not None else item for item in snapshots]


def _completed(child: Snapshot, crash: Crash, snapshots: Sequence[Snapshot]) -> Snapshot:
    was_forked = any(fact.mono_ns < child.created_mono_ns for fact in child.facts)  # and no exec() since
    parent = _parent(child, snapshots) if was_forked and not child.storages.around(crash.fault_addr) else None
    if parent is None:
        return child
    freed = [item for item in parent.storages.around(crash.fault_addr) if _is_older(item, child)]
    return replace(child, storages=child.storages.with_more(freed)) if freed else child


def _parent(child: Snapshot, snapshots: Sequence[Snapshot]) -> Snapshot | None:
    """The recording of the process that forked it: the youngest of that id that is older."""
    older = [
        item
        for item in snapshots
        if (item.pid, item.host, item.boot_id) == (child.ppid, child.host, child.boot_id)
        and item.created_mono_ns < child.created_mono_ns
    ]
    return max(older, key=lambda item: item.created_mono_ns, default=None)


def _is_older(item: Storage, child: Snapshot) -> bool:
    """Freed later, it would still be there in the copy."""
    freed_ns = item.freed.mono_ns if item.freed is not None else None
    return item.state == "freed" and freed_ns is not None and freed_ns < child.created_mono_ns
