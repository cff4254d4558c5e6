"""Why memory had been released: evidence from the frames that freed it, DDP's layouts and open collectives.

`Release.kind` decides which rule the fault belongs to; None: nothing is known beyond the line that freed it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pytracer._text import count_words, hex_addr
from pytracer.analyze.collectives.in_flight import freed_in_flight
from pytracer.analyze.naming import place_words
from pytracer.analyze.tensors.fsdp_words import released_by_sharding, sharded_words, sharding_advice
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView, is_library_file
from pytracer.report.job import Origin, PythonFrame


@dataclass(frozen=True)
class Release:
    """`says` completes "memory, which ...", `advice` "train.py:12 in main ..."; `evidence` are sentences.

    `kind`: "ddp-rebuild", "fsdp-reshard", "collective", "zero-grad" or "swap".
    """

    kind: str
    says: str
    evidence: tuple[str, ...]
    advice: str


_ADVICE = {
    "zero-grad": "ask for .grad's address after every backward(), or keep the gradients' memory with "
    "zero_grad(set_to_none=False)",
    "fsdp-reshard": "use the full parameters only between a unit's forward or backward and its reshard, or inside "
    "summon_full_params()",
    "swap": "take data_ptr() again after every change of the tensor, or change its values in place",
}
_DROPPED = "was a gradient that zero_grad() dropped"
_RESHARDED = "FSDP released when it resharded the unit"
_SHARED = "share_memory_() moved into shared memory"
# Functions of torch 2.13: name, end of the file's path, kind, and what it did.
_FUNCTIONS = (
    ("zero_grad", "torch/optim/optimizer.py", "zero-grad", _DROPPED),
    ("zero_grad", "torch/nn/modules/module.py", "zero-grad", _DROPPED),
    ("_free_storage", "torch/distributed/utils.py", "fsdp-reshard", _RESHARDED),
    ("free_storage", "torch/distributed/fsdp/_fully_shard/_fsdp_param.py", "fsdp-reshard", _RESHARDED),
    ("_apply", "torch/nn/modules/module.py", "swap", "Module.to() or its like replaced"),
    ("_load_from_state_dict", "torch/nn/modules/module.py", "swap", "load_state_dict(assign=True) replaced"),
    ("swap_tensors", "torch/utils/__init__.py", "swap", "swap_tensors() exchanged"),
    ("share_memory_", "torch/storage.py", "swap", _SHARED),
)
# Operators without a frame of their own: text of the line that called them, kind, and what they did.
_TEXTS = (
    (r"\.grad\s*=\s*None\b", "zero-grad", "was a gradient: .grad was set to None"),
    (r"\.set_\(", "swap", "set_() replaced by that of another tensor"),
    (r"\.resize_(as_)?\(", "swap", "resize_() replaced or released"),
    (r"\.data\s*=(?!=)", "swap", "an assignment to .data replaced"),
    (r"\bswap_tensors\(", "swap", "swap_tensors() exchanged"),
    (r"\.share_memory_?\(", "swap", _SHARED),
)


def release_of(view: ProcessView) -> Release | None:
    """Why the memory at the fault address had been released, if more is known than the line."""
    storage = view.storage
    if view.place is None or view.place.kind != "freed-storage" or storage is None:
        return None
    return _rebuilt(view) or _resharded(view) or _collective(view) or _traced(view, storage.freed) or _moved(view)


def _rebuilt(view: ProcessView) -> Release | None:
    bucket = view.place.bucket if view.place else None
    if bucket is None or not bucket.rebuilt:
        return None
    said = (
        f"DDP rebuilt the buckets of {bucket.module} at the start of the second forward: "
        f"a layout newer than generation {bucket.generation} was recorded"
    )
    advice = (
        "used an address from before the second forward: take the bucket's address in every iteration, "
        "or from the GradBucket of a DDP communication hook."
    )
    return Release("ddp-rebuild", "DDP released when it rebuilt its buckets", (said, *_views(view)), advice)


def _views(view: ProcessView) -> Iterator[str]:
    """With gradient_as_bucket_view every .grad was a view of the bucket: an address of .grad is as old as it."""
    place = view.place
    if place is None or place.storage is None:
        return
    here, others = view.space.uses.named.of_storage(place.storage, place.addr)
    gradients = [item.name for item in (*here, *others) if item.role == "gradient"]
    if gradients:
        more = f" and {count_words(len(gradients) - 1, 'other gradient')}" if len(gradients) > 1 else ""
        yield f"{gradients[0]}{more} lay in that bucket (gradient_as_bucket_view): addresses of .grad are stale with it"


def _resharded(view: ProcessView) -> Release | None:
    says, evidence, advice = released_by_sharding(view), sharded_words(view), sharding_advice(view)
    if says is None or evidence is None or advice is None:
        return None
    return Release("fsdp-reshard", says, (evidence,), advice)


def _collective(view: ProcessView) -> Release | None:
    """A collective on this storage that had not completed: its memory was freed before wait()."""
    storage = view.place.storage if view.place else None
    hits = (item for item in freed_in_flight(view.process.snapshot) if item.storage == storage)
    hit = next(hits, None)
    if hit is None:
        return None
    item, at = hit.collective, hit.collective.caller or hit.collective.python
    where = f", called at {place_words(PythonFrame(function=at.function, file=at.file, line=at.line))}," if at else ""
    said = f"{item.op} (sequence number {item.sequence_nr}){where} worked on that storage and had not completed"
    advice = f"ran into it. Call wait() on the work of {item.op} before its tensors are resized, replaced or released."
    return Release("collective", f"was released before {item.op} on it had completed", (said,), advice)


def _traced(view: ProcessView, freed: Origin | None) -> Release | None:
    """A way to release memory that the frames of the release betray."""
    if freed is None:
        return None
    for function, file, kind, says in _FUNCTIONS:
        if any(_is_in(frame, function, file) for frame in (freed.python, freed.caller)):
            return _by_kind(kind, says)
    frame = freed.caller or freed.python
    if frame is None or is_library_file(frame.file):
        return None
    text = line_text(view.process.snapshot, frame) or ""
    for pattern, kind, says in _TEXTS:
        if re.search(pattern, text):
            return _by_kind(kind, says, f"{place_words(frame)} reads: {text}")
    return None


def _by_kind(kind: str, says: str, *evidence: str) -> Release:
    return Release(kind, says, evidence, f"used an address from before: {_ADVICE[kind]}.")


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
        if not item.earlier or not now:
            continue
        said = f"{item.name} lies at {hex_addr(now[0].addr)} since"
        if item.role == "gradient":
            return _by_kind("zero-grad", f"was the {item.name} until backward() made a new one", said)
        return _by_kind("swap", f"was {item.name} until the tensor was given other memory", said)
    return None
