"""CPU storages of a process as a memory snapshot of torch's, for `torch.cuda._memory_viz` and pytorch.org/memory_viz.

The format belongs to the CUDA caching allocator and its traces have devices, not a CPU: the storages appear as those of
device 0, each in a segment of its own. The stream is 0, and there is no cache: a freed storage is completed at once.
"""

from __future__ import annotations

import pickle

from pytracer.decode.types.snapshot import Snapshot
from pytracer.decode.types.storages import CallSite, Storage

Entry = dict[str, object]


def memory_snapshot(box: Snapshot) -> bytes:
    """A pickle of plain lists and dicts, as torch.cuda.memory._dump_snapshot() writes it."""
    storages = [storage for storage in box.storages if storage.device == "cpu" and storage.nbytes]
    entries: list[tuple[int, Entry]] = []
    for storage in storages:
        entries.append((storage.allocated.mono_ns or 0, _entry("alloc", storage, storage.allocated.mono_ns)))
        if storage.freed is not None:
            at_ns = storage.freed.mono_ns
            entries += [(at_ns or 0, _entry(what, storage, at_ns)) for what in ("free_requested", "free_completed")]
    entries.sort(key=lambda item: item[0])
    document = {
        "segments": [_segment(storage) for storage in storages if storage.state == "live"],
        "device_traces": [[entry for _, entry in entries]],
        "allocator_settings": {},
        "external_annotations": [],
    }
    return pickle.dumps(document, protocol=2)


def _entry(action: str, storage: Storage, mono_ns: int | None) -> Entry:
    by = storage.allocated_by if action == "alloc" else storage.freed_by
    return {
        "action": action,
        "addr": storage.base,
        "size": storage.nbytes,
        "stream": 0,
        "time_us": (mono_ns or 0) // 1000,
        "frames": _frames(by),
        "compile_context": "N/A",
        "user_metadata": "",
    }


def _segment(storage: Storage) -> Entry:
    return {
        "device": 0,
        "address": storage.base,
        "total_size": storage.nbytes,
        "allocated_size": storage.nbytes,
        "active_size": storage.nbytes,
        "requested_size": storage.nbytes,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [
            {
                "address": storage.base,
                "size": storage.nbytes,
                "requested_size": storage.nbytes,
                "state": "active_allocated",
                "frames": _frames(storage.allocated_by),
            }
        ],
    }


def _frames(by: CallSite | None) -> list[Entry]:
    """The call site, innermost first: the autograd node, and what is recorded of the Python stack."""
    if by is None:
        return []
    python = by.stack or tuple(frame for frame in (by.python, by.caller) if frame is not None)
    frames: list[Entry] = [{"filename": "autograd", "line": 0, "name": by.node}] if by.node else []
    return frames + [{"filename": f.file, "line": f.line or 0, "name": f.function} for f in dict.fromkeys(python)]
