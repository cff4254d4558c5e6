"""Memory that the program had given back by munmap(), and who did: files, and buffers of libraries beside torch."""

from __future__ import annotations

from pytracer._text import hex_addr, size_words, time_words
from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.lookup import ONE_ACCESS_BYTES
from pytracer.analyze.evidence.native.native_stack import image_at, image_name
from pytracer.analyze.naming import place_words
from pytracer.analyze.parts import innermost_of_program, python_frame
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Unmapping
from pytracer.report.job import Evidence, PythonFrame

_PYTHONS_MMAP = "mmap.cpython-"
_NEARLY_AT_ONCE_NS = 1_000_000


def unmapping_of(view: ProcessView) -> Unmapping | None:
    """The call that gave the memory at the fault address back; None when it was not seen, or memory is there again."""
    crash, place = view.crash, view.place
    if crash is None or place is None or place.addr != crash.fault_addr or not crash.mappings:
        return None
    return crash.unmapping if place.mapping is None or _took_hole(place, crash.unmapping) else None


def _took_hole(place: Place, unmapping: Unmapping | None) -> bool:
    """Whether inaccessible memory lies where a living storage was, all of which was given back: a thread's heap."""
    storage, mapping = place.storage, place.mapping
    if place.kind != "in-storage" or storage is None or mapping is None or unmapping is None:
        return False
    whole = unmapping.addr <= storage.base and storage.base + storage.nbytes <= unmapping.addr + unmapping.nbytes
    return whole and not mapping.path and mapping.permissions.startswith("---")


def may_have_run_on(view: ProcessView, unmapping: Unmapping) -> bool:
    """Whether the address is the very first one that is not there: a loop that ran off its end stops there, too."""
    crash, place = view.crash, view.place
    if crash is None or place is None or place.addr - unmapping.addr >= ONE_ACCESS_BYTES:
        return False
    return any(item.end == unmapping.addr and not item.permissions.startswith("---") for item in crash.mappings)


def unmapping_line(unmapping: Unmapping) -> PythonFrame | None:
    """The innermost line of the user's program that gave it back."""
    return innermost_of_program([python_frame(frame) for frame in unmapping.stack])


def unmapper_words(view: ProcessView, unmapping: Unmapping) -> str:
    """`read.py:4 in close_file`, else `mmap.close()` of Python or `libx.so`, else `the program`."""
    frame = unmapping_line(unmapping)
    if frame is not None:
        return place_words(frame)
    image = image_at(view.crash, unmapping.caller) if view.crash is not None else None
    if image is None:
        return "the program"
    return "mmap.close()" if is_by_mmap(view, unmapping) else image_name(image)


def is_by_mmap(view: ProcessView, unmapping: Unmapping) -> bool:
    """Whether Python's mmap called munmap(): by close(), or because an object of it was collected."""
    image = image_at(view.crash, unmapping.caller) if view.crash is not None else None
    return image is not None and image_name(image).startswith(_PYTHONS_MMAP)


def unmapping_age(view: ProcessView, unmapping: Unmapping) -> str:
    """How long before the fault: `0.120 s`."""
    age = max(0, view.crash.mono_ns - unmapping.mono_ns) if view.crash is not None else 0
    return time_words(age) if age >= _NEARLY_AT_ONCE_NS else "less than 1 ms"


def unmapping_evidence(view: ProcessView) -> Evidence | None:
    """Where, when and on which thread the memory was given back."""
    unmapping, crash = unmapping_of(view), view.crash
    if unmapping is None or crash is None:
        return None
    image, frame = image_at(crash, unmapping.caller), unmapping_line(unmapping)
    by = "" if image is None else f" from {image_name(image)}"
    thread = "the same thread" if unmapping.tid == crash.tid else f"thread {unmapping.tid}"
    if unmapping.mono_ns < view.process.snapshot.created_mono_ns:
        thread = "its parent, before the fork,"
    at = f", at {place_words(frame)}" if frame is not None else ""
    return Evidence(
        "free",
        f"{unmapping_age(view, unmapping)} before, {thread} gave {size_words(unmapping.nbytes)} from "
        f"{hex_addr(unmapping.addr)} on back: munmap(){by}{at}",
        base=hex_addr(unmapping.addr),
        nbytes=unmapping.nbytes,
        tid=unmapping.tid,
        path=image,
        python=frame,
    )
