"""Why memory had been released, in words."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pytracer._text import count_words, hex_addr
from pytracer.analyze.address_space.address_info import BucketLife, UnitLife
from pytracer.analyze.collectives.in_flight import FreedInFlight
from pytracer.analyze.evidence.lifetime.releases import Moved, Release, ReleaseWay, is_sent
from pytracer.analyze.naming import place_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.fsdp_words import sharded_evidence, sharding_advice
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence, PythonFrame

_ADVICE = {
    "zero-grad": "ask for .grad's address after every backward(), or keep the gradients' memory with "
    "zero_grad(set_to_none=False)",
    "fsdp-reshard": "use the full parameters only between a unit's forward or backward and its reshard, or inside "
    "summon_full_params()",
    "swap": "take data_ptr() again after every change of the tensor, or change its values in place",
}

_SENT = (
    "sending a tensor to another process moves its memory into shared memory, so take data_ptr() again after that, or "
    "call share_memory_() on the tensor before its address is taken"
)

# Completes "memory, which ...".
_DID: dict[ReleaseWay, str] = {
    "zero_grad": "was a gradient that zero_grad() dropped",
    "grad-none": "was a gradient: .grad was set to None",
    "reshard": "FSDP released when it resharded the unit",
    "module-to": "Module.to() or its like replaced",
    "load-state-dict": "load_state_dict(assign=True) replaced",
    "swap-tensors": "swap_tensors() exchanged",
    "share-memory": "share_memory_() moved into shared memory",
    "sent": "was moved into shared memory when its tensor was pickled for another process",
    "shared": "share_memory_() or pickling for another process moved into shared memory",
    "set": "set_() replaced by that of another tensor",
    "resize": "resize_() replaced or released",
    "data": "an assignment to .data replaced",
}


class ReleaseWords(msgspec.Struct, frozen=True):
    """`says` completes "memory, which ...", `advice` "train.py:12 in main ..."; `evidence` says by what it is known."""

    says: str
    evidence: tuple[Evidence, ...]
    advice: str


def release_words(view: ProcessView, release: Release) -> ReleaseWords:
    """What is known about the release of the memory that a process used."""
    by = release.by
    if isinstance(by, BucketLife):
        return _rebuilt(view, by)
    if isinstance(by, UnitLife):
        says = f"FSDP released when it sharded {by.unit_words} again"
        return ReleaseWords(says, (sharded_evidence(view, by),), sharding_advice(by))
    if isinstance(by, FreedInFlight):
        return _collective(by)
    advice = f"used an address from before: {_SENT if is_sent(release) else _ADVICE[release.kind]}."
    if isinstance(by, Moved):
        now = hex_addr(by.now.addr)
        moved = Evidence("release", f"{by.tensor.name} lies at {now} since", tensor=by.tensor.name, addr=now)
        return ReleaseWords(_moved(by), (moved,), advice)
    return ReleaseWords(_DID[by.way], (_line(*by.line),) if by.line is not None else (), advice)


def _line(frame: PythonFrame, text: str) -> Evidence:
    return Evidence("source-line", f"{place_words(frame)} reads: {text}", python=frame, text=text)


def _rebuilt(view: ProcessView, bucket: BucketLife) -> ReleaseWords:
    said = Evidence(
        "release",
        f"DDP rebuilt the buckets of {bucket.module} at the start of the second forward: "
        f"a layout newer than generation {bucket.generation} was recorded",
        module=bucket.module,
        bucket=bucket.index,
        generation=bucket.generation,
    )
    advice = (
        "used an address from before the second forward: take the bucket's address in every iteration, "
        "or from the GradBucket of a DDP communication hook."
    )
    return ReleaseWords("DDP released when it rebuilt its buckets", (said, *_views(view)), advice)


def _views(view: ProcessView) -> Iterator[Evidence]:
    """With gradient_as_bucket_view every .grad was a view of the bucket: an address of .grad is as old as it."""
    place = view.place
    if place is None or place.storage is None:
        return
    here, others = view.space.uses.named.of_storage(place.storage, place.addr)
    gradients = [item.name for item in (*here, *others) if item.role == "gradient"]
    if gradients:
        more = f" and {count_words(len(gradients) - 1, 'other gradient')}" if len(gradients) > 1 else ""
        yield Evidence(
            "ddp-bucket",
            f"{gradients[0]}{more} lay in that bucket (gradient_as_bucket_view): addresses of .grad are stale with it",
            tensors=gradients,
        )


def _collective(hit: FreedInFlight) -> ReleaseWords:
    item, at = hit.collective, hit.collective.place
    where = f", called at {place_words(python_frame(at))}," if at else ""
    said = Evidence(
        "collective-state",
        f"{item.op} (sequence number {item.sequence_nr}){where} worked on that storage and had not completed",
        group=item.group,
        op=item.op,
        sequence_nr=item.sequence_nr,
        state=item.state,
        python=python_frame(at) if at else None,
    )
    return ReleaseWords(
        f"was released before {item.op} on it had completed",
        (said,),
        f"ran into it. Call wait() on the work of {item.op} before its tensors are resized, replaced or released.",
    )


def _moved(by: Moved) -> str:
    if by.tensor.role == "gradient":
        return f"was the {by.tensor.name} until backward() made a new one"
    return f"was {by.tensor.name} until the tensor was given other memory"
