"""A refused access to memory that no rule explains: what was touched, as far as it is known."""

from __future__ import annotations

from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.mapped_file import mapped_file
from pytracer.analyze.evidence.phrases import access_verb, in_function
from pytracer.analyze.platform.signals import SIGBUS
from pytracer.analyze.view import ProcessView

_BUS_ADRALN = 1
_READ_STACK = "Look at the recorded Python and native stacks."
_Words = tuple[str, str, str | None]


def fault_words(view: ProcessView) -> _Words:
    """What happened, without its subject; advice; what is missing."""
    crash, place = view.crash, view.place
    if crash is not None and crash.signal == SIGBUS:
        return _bus_error(view, crash.code)
    kind = place.kind if place else "none"
    where = {
        "in-storage": f"in {_live_storage(place)}, whose memory was not accessible",
        "image": "in a loaded library or program",
        "file-mapping": "in a mapped file",
    }.get(kind, _region(view))
    says = f"{access_verb(view)} memory {where}, and was refused{in_function(view)}"
    return says, _READ_STACK, "who owns the memory"


def _live_storage(place: Place | None) -> str:
    return f"the storage of {place.names[0]}" if place is not None and place.names else "a live storage"


def _region(view: ProcessView) -> str:
    """The part of the process that was touched: the stack of another thread, reserved memory and the like."""
    region = view.fault.region if view.fault else None
    if region is not None and region.kind not in ("unmapped", "anonymous"):
        return f"in {region.says}"
    return "in memory of another allocator" if region is not None and region.permissions else "whose owner is not known"


def _bus_error(view: ProcessView, code: int) -> _Words:
    at, verb = in_function(view), access_verb(view)
    if code == _BUS_ADRALN:
        advice = "Look for a pointer that was cast to a larger type, or alignment checks that a library switched on."
        return f"{verb} memory at a misaligned address{at}", advice, None
    file = mapped_file(view)
    if file is None:
        return f"{verb} memory that could not be provided{at}", _READ_STACK, "who owns the memory"
    if file.then_bytes is None and file.now_bytes is None:
        missing = "the size of the file, at the crash or now"
        says = f"{verb} byte {file.offset} of the mapped file {file.path}, which could not be provided{at}"
        return says, "Find out whether the file was truncated, or its disk failed.", missing
    says = f"{verb} byte {file.offset} of the mapped file {file.path}, which is long enough but could not be read{at}"
    advice = "Check the disk or network file system that holds the file (dmesg): reading a page of it failed."
    return says, advice, "the error of the file system"
