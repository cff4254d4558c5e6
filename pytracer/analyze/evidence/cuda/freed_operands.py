"""Operators that were given a tensor whose storage had been resized to 0: it has elements, but no memory.

FSDP frees a gathered parameter in this way until it is needed again. A kernel that uses one accesses addresses from 0.
"""

from __future__ import annotations

from msgspec import structs

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.evidence.cuda.cuda_errors import CudaError
from pytracer.analyze.evidence.cuda.gpu_core import FailedLaunch
from pytracer.analyze.evidence.cuda.launches import Launch, Suspects, pending_launches
from pytracer.analyze.evidence.cuda.shape_only import uses_freed
from pytracer.analyze.naming import place_words
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Storage
from pytracer.report.job import Evidence, PythonFrame

_BELOW = 1 << 40  # no device memory lies below
_FREES = Pattern(r"\bresize_\(\s*(?:size\s*=\s*)?0\s*\)")
_SHOWN = 3


def freed_operand(view: ProcessView, error: CudaError, failed: FailedLaunch | None) -> Launch | None:
    """The first launch, of those not known to be over, with such a tensor; None if the error may not be explained."""
    if not error.is_illegal_access:
        return None
    kernel, access = (failed.kernel, failed.access) if failed is not None else (None, None)
    if access is not None and access.place.addr >= _BELOW:
        return None
    for launch in pending_launches(view).launches:
        if uses_freed(launch) and (kernel is None or launch.kernel in (kernel, None)):
            return launch
    return None


def led_by(found: Suspects, launch: Launch | None) -> Suspects:
    """That one leads the others."""
    if launch is None:
        return found
    others = [item for item in found.launches if (item.python, item.node) != (launch.python, launch.node)]
    return structs.replace(found, launches=(launch, *others))


def freed_words(launch: Launch | None) -> str:
    """Behind what the error was."""
    if launch is None:
        return ""
    return f"; {launch.words} was given a tensor whose storage had been resized to 0 bytes"


def freed_evidence(view: ProcessView, launch: Launch | None) -> Evidence | None:
    """Which memory was freed in this way before."""
    lines = _freeing(view, launch) if launch is not None else {}
    if not lines:
        return None
    words = [f"at {place_words(frame)}{_allocated(blocks)}" for frame, blocks in lines.items()]
    return Evidence(
        "device-memory", f"memory was freed in this way {list_words(words, _SHOWN)}", python=next(iter(lines))
    )


def freed_advice(view: ProcessView, launch: Launch) -> str:
    """What to do in the program."""
    frames = list(_freeing(view, launch))
    text = line_text(view.process.snapshot, frames[0]) if len(frames) == 1 else None
    what = f"`{text}` at {place_words(frames[0])}" if text else "what resizes its storage to 0 (FSDP's reshard does)"
    return (
        f"Let {what} run only after {launch.words}, or give the tensor its memory back before that line: it has "
        "elements, but no memory, so its address is 0."
    )


def _freeing(view: ProcessView, launch: Launch) -> dict[PythonFrame, list[Storage]]:
    """Lines of the program that freed blocks by resizing them, before the launch: the newest first."""
    found: dict[PythonFrame, list[Storage]] = {}
    for block in sorted(view.process.snapshot.storages.on_devices(), key=lambda item: item.order, reverse=True):
        freed, site = block.freed, block.freed_by
        if freed is None or freed.mono_ns is None or freed.mono_ns > launch.mono_ns or site is None:
            continue
        if site.python is None or site.place is None:
            continue
        if _FREES.search(line_text(view.process.snapshot, python_frame(site.python)) or ""):
            found.setdefault(python_frame(site.place), []).append(block)
    return found


def _allocated(blocks: list[Storage]) -> str:
    made = [item.allocated_by.place for item in blocks]
    places = list(dict.fromkeys(place_words(python_frame(frame)) for frame in made if frame is not None))
    return f" (allocated at {list_words(places, _SHOWN)})" if places else ""
