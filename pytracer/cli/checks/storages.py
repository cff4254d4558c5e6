"""Which kinds of memory are recorded: a child allocates a storage of each, once preloaded and once with enable()."""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from pathlib import Path

from pytracer._paths import install_again
from pytracer.blackbox.schema import Origin
from pytracer.cli.checks.answer import LIMITED, MISSING, WORKS, Check, boxes, has_hooks, is_built, python, traced
from pytracer.decode.recording.reader import read_box

_MAKE = """
import torch
from torch.utils import dlpack
open("five", "wb").write(bytes(5))
kept = [torch.ones(5), torch.UntypedStorage(7), torch.frombuffer(bytearray(5), dtype=torch.uint8)]
kept += [dlpack.from_dlpack(dlpack.to_dlpack(torch.ones(5))), torch.ones(5).share_memory_()]
kept += [torch.from_file("five", shared=True, size=5, dtype=torch.uint8)]
"""
_UNTYPED, _UNTYPED_NBYTES = "UNTYPED_STORAGE", 7  # also in memory of torch's allocator: identified by its size
_MADE = {
    Origin.CPU_ALLOCATOR.name: "torch.empty and operators",
    _UNTYPED: "torch.UntypedStorage",
    Origin.BUFFER.name: "frombuffer, from_numpy, from_blob",
    Origin.DLPACK.name: "DLPack",
    Origin.SHARED_MEMORY.name: "shared memory",
    Origin.MAPPED_FILE.name: "mapped files",
}
_BOTH = "; never: pinned memory from before enable(); from_blob of libraries loaded after enable(), unless preloaded"


def check_storages() -> Check:
    """Reads the recordings of the two children."""
    if not is_built() or not has_hooks():
        return Check("storages", LIMITED, "not tried: see `native` above")
    with tempfile.TemporaryDirectory(prefix="pytracer-doctor-") as directory:
        traced(Path(directory), "-c", _MAKE)
        preloaded = _kinds(directory)
    with tempfile.TemporaryDirectory(prefix="pytracer-doctor-") as directory:
        python(f"import pytracer; pytracer.enable({directory!r})\n{_MAKE}", directory=directory)
        enabled = _kinds(directory)
    return storages(preloaded, enabled)


def storages(preloaded: Collection[str | None], enabled: Collection[str | None]) -> Check:
    """`preloaded`, `enabled`: the kinds in each child's recording, as in _MADE."""
    missing = {
        way: [words for kind, words in _MADE.items() if kind not in found]
        for way, found in (("preloaded", preloaded), ("with enable()", enabled))
    }
    if len(missing["preloaded"]) == len(_MADE):
        return Check("storages", MISSING, "no storage was recorded", install_again())
    lost = [f"{way}, {', '.join(words)}" for way, words in missing.items() if words]
    if lost:
        return Check("storages", LIMITED, f"not recorded: {'; '.join(lost)}", install_again())
    return Check("storages", WORKS, f"{len(_MADE)} kinds of memory, preloaded and with enable(){_BOTH}")


def _kinds(directory: str) -> set[str | None]:
    found = [storage for path in boxes(directory) for storage in read_box(path).storages]
    return {_UNTYPED if storage.nbytes == _UNTYPED_NBYTES else storage.origin for storage in found}
