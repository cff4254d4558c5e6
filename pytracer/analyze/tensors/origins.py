"""The origin of a storage's memory, in the report's terms."""

from __future__ import annotations

from collections.abc import Mapping

from pytracer.blackbox.schema import Origin
from pytracer.decode.types.snapshot import CallSite, Storage

_TORCH_LOAD = "/torch/serialization.py"
# External memory: the end of the storage does not mean the end of the memory.
_BORROWED = {origin.name for origin in (Origin.NUMPY, Origin.BUFFER, Origin.DLPACK, Origin.BLOB)}
_FROM_TORCH = {origin.name for origin in (Origin.CPU_ALLOCATOR, Origin.DEFAULT_ALLOCATOR)}


def origin_kind(storage: Storage) -> str | None:
    """`report.StorageReport.origin`. The innermost Python frame identifies allocations of torch.load."""
    if storage.origin in _FROM_TORCH and _in_torch_load(storage.allocated_by):
        return "torch-load"
    return storage.origin.lower().replace("_", "-") if storage.origin else None


def is_borrowed(storage: Storage) -> bool:
    """Whether the memory is external: its owner may keep or release it whatever the storage does."""
    return storage.origin in _BORROWED


def lost_storages(counts: Mapping[str, int]) -> list[str]:
    """Storages that the tables could not hold, for the notes: an unknown address may lie in one of these."""
    names = {
        "storages_dropped": "storages found no room in the table of live storages",
        "foreign_dropped": "storages of foreign memory found no room in their table",
    }
    return [
        f"{count} {words}: an address that is unknown may lie in one of them"
        for name, words in names.items()
        if (count := counts.get(name, 0))
    ]


def _in_torch_load(site: CallSite) -> bool:
    return site.python is not None and site.python.file.endswith(_TORCH_LOAD)
