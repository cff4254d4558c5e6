"""Phrases that several rules use, so that the same fact is always worded the same way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import structs

from pytracer._text import hex_addr, list_words, origin_phrase, size_words, time_words
from pytracer.analyze.address_space.description import offset_words
from pytracer.analyze.evidence.exceptions.telling import telling_words
from pytracer.analyze.evidence.native.fault_function import fault_function, own_function
from pytracer.analyze.evidence.own_code.native_bounds import line_before
from pytracer.analyze.evidence.own_code.own_signature import called_definition
from pytracer.analyze.evidence.own_code.passed_memory import called_by_ctypes
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.naming import name_words, place_words
from pytracer.analyze.parts import innermost_of_program
from pytracer.analyze.platform.instruction import disassembler
from pytracer.analyze.tensors.origins import origin_kind
from pytracer.analyze.view import ProcessView
from pytracer.report.job import (
    Evidence,
    ExceptionReport,
    GuardDamage,
    HandledExceptionReport,
    LastCollective,
    Origin,
    StorageReport,
    ThreadExceptionReport,
)

ACCESS_PAST = {"read": "read", "write": "wrote", "execute": "jumped to", None: "touched"}
_OPERANDS = "the operands of the faulting instruction (pip install 'pytracer[disasm]')"


def missing_operands(view: ProcessView) -> str | None:
    """The operands that a disassembler would show; None when one is installed."""
    return _OPERANDS if view.instruction is None and disassembler() is None else None


def access_verb(view: ProcessView) -> str:
    """`read`, `wrote`, `jumped to` or `touched`."""
    return ACCESS_PAST.get(view.fault.access if view.fault else None, "touched")


def in_function(view: ProcessView) -> str:
    """` in c10d::Logger::set_env_variables`, or nothing when the function is unknown."""
    found = fault_function(view)
    if found is None:
        return ""
    lines = line_before(view) if found.own and found.place is not None else None
    file = (found.place or "").partition(":")[0]
    moved = lines is not None and lines.startswith(f"{file}:")
    if found.own and found.place is None and own_function(view) is None and called_by_ctypes(view):
        called = called_definition(view)  # the library is gone, and with it the names
        below = f", below {called_name(called.call)} ({called.found.place})" if called is not None else ""
        return f" in {found.words}{below}"
    return f" in {structs.replace(found, place=lines).words if moved else found.words}"


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
    return Evidence(
        "access",
        f"{name}{code}: {access}{size} {addr}{instruction}",
        signal=signal.name if signal else None,
        code=signal.code if signal else None,
        access=fault.access if fault else None,
        nbytes=fault.size if fault else None,
        addr=fault.addr if fault else None,
        instruction=fault.instruction if fault else None,
    )


def abort_evidence(view: ProcessView) -> Evidence:
    """That the process raised SIGABRT, which the handler saw or only its parent."""
    words = "SIGABRT, sent by the process itself" if view.crash else "SIGABRT was the status of the process"
    return Evidence("signal", words, signal="SIGABRT", pid=view.process.snapshot.pid)


def python_evidence(view: ProcessView) -> Evidence | None:
    """The Python line that was executing."""
    frame = view.python_frame
    return Evidence("python-line", f"the Python code was at {place_words(frame)}", python=frame) if frame else None


def exception_evidence(exception: ExceptionReport | None) -> Evidence | None:
    """Type and message of an uncaught exception."""
    if exception is None:
        return None
    words = f"{exception.type}: {exception.message}"
    return Evidence("exception", words, exception=exception.type, text=exception.message)


def printed_evidence(text: str | None) -> Evidence | None:
    """What the C library printed before it called abort()."""
    return Evidence("printed", f"the C library printed: {text}", text=text) if text else None


def collective_evidence(views: Sequence[ProcessView]) -> Evidence | None:
    """Whether a collective was open when these processes died; None when none were recorded, or the last one failed."""
    ranks = [view for view in views if view.process.role == "rank" and _records_collectives(view)]
    states = [view.last_collective for view in ranks]
    if not states:
        return None
    queued = next((item for item in states if item is not None and item.state == "queued"), None)
    if queued is not None:
        return collective_state(
            queued,
            f"{queued.op} (sequence number {queued.sequence_nr}) had been queued on the device; "
            "how far it got is not known",
        )
    still_open = [item for item in states if item is not None and item.state in ("scheduled", "started")]
    if not still_open and any(item is not None and item.state == "failed" for item in states):
        return None  # its end was that of a collective, or followed it
    if not still_open:
        return _none_open(ranks)
    first = still_open[0]
    return collective_state(
        first, f"{first.op} (sequence number {first.sequence_nr}) was {first.state} and not completed"
    )


def _none_open(views: Sequence[ProcessView]) -> Evidence:
    """Of these ranks: others may have been in one."""
    if any((view.process.world_size or 1) > len(views) for view in views):
        was = "was" if len(views) == 1 else "were"
        return Evidence("collective-state", f"{name_words(views)} {was} in no collective", state="none open")
    return Evidence("collective-state", "no collective was open", state="none open")


def collective_state(call: LastCollective, sentence: str) -> Evidence:
    """How far a collective had come, in some words."""
    return Evidence(
        "collective-state", sentence, group=call.group, op=call.op, sequence_nr=call.sequence_nr, state=call.state
    )


def _records_collectives(view: ProcessView) -> bool:
    """Some were recorded, or torch was in use and no hook failed: only then is their absence evidence."""
    snapshot = view.process.snapshot
    silent = bool(snapshot.versions.torch) and not snapshot.lacks_collectives
    return view.last_collective is not None or silent


def allocation_evidence(storage: StorageReport | GuardDamage | None, verb: str = "allocated") -> Evidence | None:
    """By whom, where and when a storage was allocated, or `verb` "made"."""
    return _origin("allocation", verb, storage, storage.allocated) if storage is not None else None


def free_evidence(storage: StorageReport | GuardDamage | None) -> Evidence | None:
    """By whom, where and when a storage was freed."""
    return _origin("free", "freed", storage, storage.freed) if storage is not None else None


def _origin(
    kind: Literal["allocation", "free"], verb: str, storage: StorageReport | GuardDamage, origin: Origin | None
) -> Evidence | None:
    if origin is None:
        return None
    return Evidence(
        kind,
        origin_words(verb, origin),
        base=storage.base,
        nbytes=storage.nbytes,
        tensor=next(iter(storage.names or ()), None) if isinstance(storage, StorageReport) else None,
        python=origin.place,
        autograd_node=origin.autograd_node,
        step=origin.step,
        time=origin.time,
        thread=origin.thread,
    )


def origin_words(verb: str, origin: Origin) -> str:
    """`freed at train.py:12 in step (inside .../distributed.py:1641 in _rebuild), by autograd node X, step 3`."""
    place = origin.place
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


def storage_evidence(view: ProcessView) -> Evidence | None:
    """Which storage, how large, and where in it."""
    place = view.place
    if place is None or place.storage is None:
        return None
    storage = place.storage
    kind = origin_phrase(origin_kind(storage), storage.file)
    what = f"a {storage.state} storage of {size_words(storage.nbytes)} at {hex_addr(storage.base)}"
    return Evidence(
        "storage",
        f"the address is {offset_words(place)} {what}" + (f" ({kind})" if kind else ""),
        addr=hex_addr(place.addr),
        base=hex_addr(storage.base),
        nbytes=storage.nbytes,
        offset_bytes=place.addr - storage.base,
        state=storage.state,
        tensor=next(iter(place.names), None) if not place.rivals else None,
        path=storage.file,
    )


def earlier_evidence(view: ProcessView) -> Evidence | None:
    """What the same memory was before: a pointer may be older than the last owner."""
    earlier = view.place.earlier if view.place else ()
    if not earlier:
        return None
    return Evidence(
        "storage-lifetime", f"before that, the same memory was {list_words(earlier)}", tensors=list(earlier)
    )


def bucket_evidence(view: ProcessView) -> Evidence | None:
    """The DDP bucket, its parameters and the one at the offset."""
    bucket = view.place.bucket if view.place else None
    if bucket is None:
        return None
    holds = f", which held the gradients of {list_words(bucket.parameters)}" if bucket.parameters else ""
    at = f"; at that offset lay the gradient of {bucket.parameter}" if bucket.parameter else ""
    return Evidence(
        "ddp-bucket",
        f"that storage was {bucket.name}{holds}{at}",
        module=bucket.module,
        bucket=bucket.index,
        generation=bucket.generation,
        nbytes=bucket.nbytes,
        offset_bytes=bucket.offset_bytes,
        tensor=bucket.parameter,
        tensors=list(bucket.parameters),
    )


def tensor_and_line(view: ProcessView) -> str:
    """The tensor at the fault address, and where it was made: "0.weight that was made at train.py:12 in build"."""
    storage = view.storage
    made = storage.allocated.place if storage and storage.allocated else None
    name = (view.place.name if view.place else None) or "a tensor"
    rivals = view.place.rivals if view.place else ()
    if rivals:
        living = [item for item in (view.place.storage if view.place else None, *rivals) if item is not None]
        same = len({item.allocated_by for item in living}) == 1
        made, name = made if same else None, f"{name} that have the same address"
        return f"{name} and were made at {place_words(made)}" if made else name
    return f"{name} that was made at {place_words(made)}" if made else name


def error_at_words(report: ThreadExceptionReport | HandledExceptionReport | ExceptionReport) -> str:
    """`ValueError: no such file at train.py:21 in step`."""
    at = innermost_of_program(report.python_stack or ())
    return f"{error_words(report)}{f' at {place_words(at)}' if at is not None else ''}"


def error_words(report: ThreadExceptionReport | HandledExceptionReport | ExceptionReport) -> str:
    """`KeyError: 2`: the type, and what the message says."""
    message = telling_words(report.message)
    return f"{report.type}: {message}" if message else f"{report.type}"
