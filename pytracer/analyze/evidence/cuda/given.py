"""The memory that suspected launches were given: parameters, DDP buckets, or blocks with the line that allocated them.

Addresses are those of a launch's first inputs. A block that was allocated after the launch, at the same address, is
another one, and is left out.
"""

from __future__ import annotations

from pytracer._text import hex_addr, list_words, size_words
from pytracer.analyze.address_space.device_memory import made_words
from pytracer.analyze.evidence.cuda.launches import Launch, Suspects
from pytracer.analyze.evidence.cuda.shape_only import uses_freed
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence

_SHOWN, _LAUNCHES, _LONGEST = 4, 2, 80
_FREED = "a tensor that has elements but no memory (its storage had been resized to 0 bytes, its address is 0)"


def given_evidence(view: ProcessView, found: Suspects, probable: Launch | None = None) -> list[Evidence]:
    """What the one launch was given, or the probable one; otherwise the likeliest of them."""
    told = []
    verb = "was" if found.culprit is not None else "may have been the one, and was"
    verb = "was probably the one, and was" if probable is not None else verb
    freed = [item for item in found.launches if uses_freed(item)]
    likeliest = sorted(found.launches, key=lambda item: not item.is_custom)[:_LAUNCHES]
    for launch in freed[:1] or ([probable] if probable is not None else likeliest):
        given = [_FREED] if uses_freed(launch) else []
        given += [words for addr in dict.fromkeys(launch.storages) if (words := _memory(view, launch, addr))]
        if given:
            words = f"{launch.name} {verb} given {list_words(given, _SHOWN)}"
            said = f"{words}{code_words(view, launch)}"
            told.append(Evidence("device-memory", said, python=launch.python, count=len(given)))
    return told


def _memory(view: ProcessView, launch: Launch, addr: int) -> str | None:
    place = view.space.describe(addr)
    storage = place.storage
    if storage is None:
        if place.segment is not None or not addr or not view.process.snapshot.segments:
            return None
        return f"memory at {hex_addr(addr)} that no record of torch's allocator has, perhaps another library's"
    made = storage.allocated.mono_ns
    if storage.device == "cpu" or (made is not None and made > launch.mono_ns):
        return None
    inside = f"{place.offset_bytes} bytes into " if place.offset_bytes else ""
    what = place.names[0] if place.names else f"a block of {size_words(storage.nbytes)}"
    return f"{inside}{what}{made_words(storage)}"


def code_words(view: ProcessView, launch: Launch) -> str:
    """`, by `scale[grid](x, out)``: the program's line has the names of the arguments."""
    text = line_text(view.process.snapshot, launch.python) if launch.node is None else None
    return f", by `{text if len(text) <= _LONGEST else text[: _LONGEST - 3] + '...'}`" if text else ""
