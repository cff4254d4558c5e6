"""Phrases that several rules use, so that the same fact is always said the same way."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._text import hex_addr, list_words, origin_phrase, size_words, time_words
from pytracer.analyze.address_space.description import offset_words
from pytracer.analyze.collectives.matching import lacks_collectives
from pytracer.analyze.naming import place_words
from pytracer.analyze.platform.instruction import disassembler
from pytracer.analyze.tensors.origins import origin_kind
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence, Origin

ACCESS_PAST = {"read": "read", "write": "wrote", "execute": "jumped to", None: "touched"}
_OPERANDS = "the operands of the faulting instruction (pip install 'pytracer[disasm]')"


def missing_operands(view: ProcessView) -> str | None:
    """What a disassembler would have told; nothing when one is installed."""
    return _OPERANDS if view.instruction is None and disassembler() is None else None


def access_verb(view: ProcessView) -> str:
    """`read`, `wrote`, `jumped to` or `touched`."""
    return ACCESS_PAST.get(view.fault.access if view.fault else None, "touched")


def in_function(view: ProcessView) -> str:
    """` in c10d::Logger::set_env_variables`, or nothing when the function is unknown."""
    return f" in {view.function}" if view.function else ""


def fault_evidence(view: ProcessView) -> Evidence:
    """The signal, its code, the address and the access in one sentence."""
    signal, fault = view.signal, view.fault
    name = signal.name if signal else "a signal"
    code = f" ({signal.code})" if signal and signal.code else ""
    addr = fault.addr if fault and fault.addr else "an address the processor does not report"
    access = {"read": "reading", "write": "writing", "execute": "executing"}.get(
        fault.access or "" if fault else "", "at"
    )
    size = f" {fault.size} bytes at" if fault and fault.size else ""
    instruction = f", {fault.instruction}" if fault and fault.instruction else ""
    return Evidence(f"{name}{code}: {access}{size} {addr}{instruction}", "signal")


def python_evidence(view: ProcessView) -> Evidence | None:
    """The Python line that was executing."""
    frame = view.python_frame
    return Evidence(f"the Python code was at {place_words(frame)}", "python-line") if frame else None


def printed_evidence(text: str | None) -> Evidence | None:
    """What the C library printed before it called abort()."""
    return Evidence(f"the C library printed: {text}", "printed") if text else None


def collective_evidence(views: Sequence[ProcessView]) -> str | None:
    """Whether a collective was open when these processes died; None when collectives were not recorded."""
    ranks = [view for view in views if view.process.role == "rank" and _records_collectives(view)]
    states = [view.last_collective for view in ranks]
    if not states:
        return None
    queued = next((item for item in states if item is not None and item.state == "queued"), None)
    if queued is not None:
        return (
            f"{queued.op} (sequence number {queued.sequence_nr}) had been queued on the device; "
            "how far it got is not known"
        )
    still_open = [item for item in states if item is not None and item.state in ("scheduled", "started")]
    if not still_open:
        return "no collective was open"
    return (
        f"{still_open[0].op} (sequence number {still_open[0].sequence_nr}) was {still_open[0].state} and not completed"
    )


def _records_collectives(view: ProcessView) -> bool:
    """Some were recorded, or torch was seen and no hook complained: only then does their absence say something."""
    snapshot = view.process.snapshot
    silent = bool(snapshot.versions.torch) and not lacks_collectives(snapshot)
    return view.last_collective is not None or silent


def origin_words(verb: str, origin: Origin | None) -> str | None:
    """`freed at train.py:12 in step (inside .../distributed.py:1641 in _rebuild), by autograd node X, step 3`."""
    if origin is None:
        return None
    place = origin.caller or origin.python
    parts = [f"{verb} at {place_words(place)}" if place else f"{verb} at an unrecorded place"]
    if origin.caller is not None and origin.python is not None and origin.python != origin.caller:
        parts[0] += f" (inside {place_words(origin.python)})"
    if origin.autograd_node:
        parts.append(f"by autograd node {origin.autograd_node}")
    if origin.step is not None:
        parts.append(f"step {origin.step}")
    if origin.time is not None:
        parts.append(f"about {time_words(origin.time)} into the run")
    return ", ".join(parts)


def storage_words(view: ProcessView) -> str | None:
    """Which storage, how large, and where in it."""
    place = view.place
    if place is None or place.storage is None:
        return None
    storage = place.storage
    kind = origin_phrase(origin_kind(storage), storage.file)
    what = f"a {storage.state} storage of {size_words(storage.nbytes)} at {hex_addr(storage.base)}"
    return f"the address is {offset_words(place)} {what}" + (f" ({kind})" if kind else "")


def earlier_words(view: ProcessView) -> str | None:
    """What the same memory was before: a pointer may be older than the last owner."""
    earlier = view.place.earlier if view.place else ()
    return f"before that, the same memory was {list_words(earlier)}" if earlier else None


def bucket_words(view: ProcessView) -> str | None:
    """The DDP bucket, its parameters and the one at the offset."""
    bucket = view.place.bucket if view.place else None
    if bucket is None:
        return None
    holds = f", which held the gradients of {list_words(bucket.parameters)}" if bucket.parameters else ""
    at = f"; at that offset lay the gradient of {bucket.parameter}" if bucket.parameter else ""
    return f"that storage was {bucket.name}{holds}{at}"
