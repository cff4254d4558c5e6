"""Why memory had been released: evidence from the frames that freed it, DDP's layouts and open collectives.

`Release.kind` decides which rule the fault belongs to; no release at all means that nothing is known but the line
that freed it. `release_words.py` has the sentences.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Literal

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.address_space.address_info import BucketLife, UnitLife
from pytracer.analyze.collectives.in_flight import FreedInFlight, freed_in_flight
from pytracer.analyze.tensors.fsdp_words import sharded_unit
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import NamedTensor
from pytracer.report.job import Origin, PythonFrame

ReleaseKind = Literal["ddp-rebuild", "fsdp-reshard", "collective", "zero-grad", "swap"]
ReleaseWay = Literal[
    "zero_grad",
    "grad-none",
    "reshard",
    "module-to",
    "load-state-dict",
    "swap-tensors",
    "share-memory",
    "sent",
    "shared",
    "set",
    "resize",
    "data",
]


class Moved(msgspec.Struct, frozen=True):
    """A named tensor that had the storage, and where it lies since."""

    tensor: NamedTensor
    now: NamedTensor


class Traced(msgspec.Struct, frozen=True):
    """The way in which a function or a line released the memory. `line`: its text, where that is how it is known."""

    way: ReleaseWay
    line: tuple[PythonFrame, str] | None = None


class Release(msgspec.Struct, frozen=True):
    """The kind of release, and by what it is known."""

    kind: ReleaseKind
    by: BucketLife | UnitLife | FreedInFlight | Traced | Moved


# Functions of torch 2.13: name, end of the file's path, kind, and way.
_FUNCTIONS: tuple[tuple[str, str, ReleaseKind, ReleaseWay], ...] = (
    ("zero_grad", "torch/optim/optimizer.py", "zero-grad", "zero_grad"),
    ("zero_grad", "torch/nn/modules/module.py", "zero-grad", "zero_grad"),
    ("_free_storage", "torch/distributed/utils.py", "fsdp-reshard", "reshard"),
    ("free_storage", "torch/distributed/fsdp/_fully_shard/_fsdp_param.py", "fsdp-reshard", "reshard"),
    ("_apply", "torch/nn/modules/module.py", "swap", "module-to"),
    ("_load_from_state_dict", "torch/nn/modules/module.py", "swap", "load-state-dict"),
    ("swap_tensors", "torch/utils/__init__.py", "swap", "swap-tensors"),
    ("share_memory_", "torch/storage.py", "swap", "share-memory"),
)
# Where torch moves a storage into shared memory, also for whoever pickles it for another process.
_SHARES = ("_share_fd_cpu_", "_share_filename_cpu_")
_REDUCTIONS = "torch/multiprocessing/reductions.py"
_PICKLERS = (
    "multiprocessing"  # the folder of the standard library's package: reduction.py, and pool.py for torch's queues
)
_SHARE_MEMORY = Pattern(r"\bshare_memory_?\b")
# Operators without a frame of their own: text of the line that called them, kind, and way.
_TEXTS: tuple[tuple[str, ReleaseKind, ReleaseWay], ...] = (
    (r"\.grad\s*=\s*None\b", "zero-grad", "grad-none"),
    (r"\.set_\(", "swap", "set"),
    (r"\.resize_(as_)?\(", "swap", "resize"),
    (r"\.data\s*=(?!=)", "swap", "data"),
    (r"\bswap_tensors\(", "swap", "swap-tensors"),
    (r"\.share_memory_?\(", "swap", "share-memory"),
)


def release_of(view: ProcessView) -> Release | None:
    """Why the memory at the fault address had been released, as far as more is known than where."""
    place, storage = view.place, view.storage
    if place is None or place.kind != "freed-storage" or storage is None:
        return None
    if place.bucket is not None and place.bucket.rebuilt:
        return Release("ddp-rebuild", place.bucket)
    unit = sharded_unit(view)
    if unit is not None:
        return Release("fsdp-reshard", unit)
    return _collective(view) or _traced(view, storage.freed) or _moved(view)


def is_sent(release: Release | None) -> bool:
    """Whether the tensor was pickled for another process, which moved its memory."""
    return release is not None and isinstance(release.by, Traced) and release.by.way == "sent"


def _collective(view: ProcessView) -> Release | None:
    """A collective on this storage that had not completed: its memory was freed before wait()."""
    storage = view.place.storage if view.place else None
    hits = (item for item in freed_in_flight(view.process.snapshot) if item.storage == storage)
    hit = next(hits, None)
    return Release("collective", hit) if hit is not None else None


def _traced(view: ProcessView, freed: Origin | None) -> Release | None:
    """A way to release memory that the frames of the release betray."""
    if freed is None:
        return None
    if any(_is_in(freed.python, function, "torch/storage.py") for function in _SHARES):
        return Release("swap", Traced(_shared_by(view, freed.caller)))
    if _is_in(freed.python, "reduce_storage", _REDUCTIONS):
        return Release("swap", Traced("sent"))
    for function, file, kind, way in _FUNCTIONS:
        if any(_is_in(frame, function, file) for frame in (freed.python, freed.caller)):
            return Release(kind, Traced(way))
    frame = freed.place
    if frame is None or is_library_file(frame.file):
        return None
    text = line_text(view.process.snapshot, frame) or ""
    for pattern, kind, way in _TEXTS:
        if re.search(pattern, text):
            return Release(kind, Traced(way, (frame, text)))
    return None


def _shared_by(view: ProcessView, caller: PythonFrame | None) -> ReleaseWay:
    """share_memory_() and a pickler are both written in Python of torch, which is not recorded: the caller decides."""
    if caller is None:
        return "shared"
    if is_library_file(caller.file):
        return "sent" if PurePosixPath(caller.file or "").parent.name == _PICKLERS else "shared"
    text = line_text(view.process.snapshot, caller) or ""
    return "share-memory" if _SHARE_MEMORY.search(text) else "shared"


def _is_in(frame: PythonFrame | None, function: str, file: str) -> bool:
    """Whether a frame is that function; from Python 3.11 on functions are recorded with their classes."""
    name = (frame.function or "").rsplit(".", 1)[-1] if frame else ""
    return frame is not None and name == function and (frame.file or "").endswith(file)


def _moved(view: ProcessView) -> Release | None:
    """A named tensor that had this storage has another one since; the line was not recorded."""
    place = view.place
    if place is None or place.storage is None:
        return None
    here, others = view.space.uses.named.of_storage(place.storage, place.addr)
    for item in (*here, *others):
        now = [other for other in view.space.uses.named.with_name(item.name) if not other.earlier]
        if item.earlier and now:
            return Release("zero-grad" if item.role == "gradient" else "swap", Moved(item, now[0]))
    return None
