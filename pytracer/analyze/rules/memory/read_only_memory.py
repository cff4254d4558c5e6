"""read-only-memory: native code wrote to memory that may only be read.

What: the processor refused a write in a mapping without the right to write. The file, library or tensor that it
belongs to is named.

Why it happens: a tensor or array over a file that was opened for reading (np.memmap(mode='r') with torch.from_numpy,
which only warns) was changed in place; a string literal or a constant was written; memory was protected on purpose.

What to do: open the file with mode 'c' (copy on write) or 'r+', or clone the tensor before it is changed.

How it can be wrong: a wild pointer may fall into read-only memory by chance, most likely into a library. A
write to its first or last bytes, right beside memory that may be written, is taken for one that ran on from there
(runaway-access), unless a tensor of that memory is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._text import hex_addr
from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.operands import COMPUTED
from pytracer.analyze.evidence.indices.runs import ran_on
from pytracer.analyze.evidence.lifetime.file_mappers import copied_instead, file_mapper
from pytracer.analyze.evidence.lifetime.variables import variable_of
from pytracer.analyze.evidence.native.native_stack import image_name
from pytracer.analyze.evidence.own_code.passed import passed
from pytracer.analyze.evidence.phrases import (
    bucket_evidence,
    collective_evidence,
    fault_evidence,
    in_function,
    python_evidence,
    storage_evidence,
)
from pytracer.analyze.naming import introduction
from pytracer.analyze.platform.signals import SIGSEGV
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.rules.fault import MemoryFaultRule
from pytracer.analyze.tensors.fsdp_words import unit_evidence
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Mapping
from pytracer.report.job import Evidence

SEGV_ACCERR = 2
_LEAST_NUMBERS, _LARGEST_ELEMENT = 2, 8
_FILE = "Map the file with mode 'c' (copy on write) or 'r+', or clone the tensor before it is changed in place."
_OTHER = "Look at what the native function writes to: a constant, protected memory, or a pointer that is not its own."


class ReadOnlyMemory(MemoryFaultRule[str | None]):
    """Fires for a refused write in a mapping that can be read; finds the tensor that a loop may have left, in words."""

    id = "read-only-memory"
    needs = ("crash",)

    def judge(self, view: ProcessView) -> Judgement[str | None] | None:
        """See MemoryFaultRule."""
        crash, place, fault = view.crash, view.place, view.fault
        if place is not None and (place.found == COMPUTED or ran_on(view) is not None):
            return None  # it ran into that memory; see runaway-access
        if crash is None or place is None or place.mapping is None or fault is None or place.kind == "freed-storage":
            return None
        refused = (crash.signal, crash.code) == (SIGSEGV, SEGV_ACCERR) and fault.access == "write"
        if not refused or not place.mapping.permissions.startswith("r-"):
            return None
        tensor = _passed_tensor(view)
        if tensor is not None:
            return Judgement("out-of-bounds", "possible", (view,), tensor)
        return Judgement("read-only-write", "likely" if place.kind == "image" else "certain", (view,), None)

    def describe(self, job: JobView, judgement: Judgement[str | None]) -> Description:
        """See MemoryFaultRule."""
        view = judgement.views[0]
        mapping = view.place.mapping if view.place else None
        tensor = judgement.found
        past = f"past the end of {tensor}, into read-only memory of another library" if tensor is not None else None
        return Description(
            f"{introduction(judgement.views)} wrote {past or f'to read-only memory, {_where(view)}'}"
            f"{in_function(view)}.",
            [
                fault_evidence(view),
                _permissions(mapping),
                storage_evidence(view),
                bucket_evidence(view),
                unit_evidence(view),
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            _advice(view),
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> NoFinding:
        """See MemoryFaultRule."""
        return not_found("no write was refused in memory that can be read")


def _permissions(mapping: Mapping | None) -> Evidence | None:
    if mapping is None:
        return None
    return Evidence(
        "mapping",
        f"the memory's permissions were {mapping.permissions}",
        addr=hex_addr(mapping.start),
        nbytes=mapping.end - mapping.start,
        permissions=mapping.permissions,
        path=mapping.path or None,
    )


def _where(view: ProcessView) -> str:
    place = view.place
    if place is None or place.mapping is None:
        return "whose owner is not known"
    if place.kind == "in-storage" and place.storage is not None:
        name = next(iter(place.names), None)
        what = f"the storage of {name}" if name else variable_of(view, place.storage.base) or "a live storage"
        if not _is_file(place):
            return what
        mapper = file_mapper(view, place.mapping.path)
        opened = f" (read-only by {mapper.mode} at {mapper.place})" if mapper is not None and mapper.mode else ""
        return f"{what}, which lies in the mapped file {place.mapping.path}{opened}"
    if place.kind == "file-mapping":
        return f"the mapped file {place.mapping.path}"
    if place.kind == "image":
        return f"part of {image_name(place.mapping.path)}"
    return "which belongs to another allocator"


def _passed_tensor(view: ProcessView) -> str | None:
    """The closest tensor below, if the numbers that the line passes with it lead so far: a library lay behind it.

    Not in the library that wrote: there it is a constant.
    """
    place = view.place
    found = passed(view) if place is not None and place.kind == "image" else None
    if place is None or place.mapping is None or found is None or len(found.values) < _LEAST_NUMBERS:
        return None
    if view.crash is None or any(item.image == place.mapping.path for item in view.crash.native_stack[:1]):
        return None
    *_, second, first = sorted(abs(value) for value in found.values)
    reach = first * max(second, 1) * _LARGEST_ELEMENT
    live = ((view.space.live_around(base), words) for base, words in zip(found.bases, found.tensors, strict=True))
    below = [
        (storage.base, words)
        for storage, words in live
        if storage is not None and storage.base + storage.nbytes <= place.addr < storage.base + reach
    ]
    return max(below)[1] if below else None


def _advice(view: ProcessView) -> str:
    """A number that is too large leads into whatever lies behind a tensor, too."""
    if view.place is not None and _is_file(view.place):
        return _file_advice(view, view.place)
    found = passed(view) if view.place is not None and view.place.kind == "image" else None
    if found is not None and found.numbers and found.tensors:
        return (
            f"Check {found.words}, which line {found.line} passes with {' and '.join(found.tensors)}: if they are too "
            "large, or of another unit (bytes, elements), it ran from there into this memory. If not, it wrote to a "
            "constant, or by a pointer that is not its own."
        )
    return _OTHER


def _file_advice(view: ProcessView, place: Place) -> str:
    """The lines that map the file and make the tensor of it, and what to change there."""
    mapper = file_mapper(view, place.mapping.path) if place.mapping is not None else None
    copied = copied_instead(view, place.storage) if place.storage is not None else None
    mode = mapper.mode if mapper is not None else None
    private = f"mode 'c' (copy on write) instead of {mode} at {mapper.place}" if mapper is not None and mode else None
    if copied is not None:
        opened = f", or map the file with {private}" if private is not None else ""
        return (
            f"Write `{copied[1]}` at {copied[0]}: the tensor shares the memory of the file. Or do not change it in "
            f"place{opened}."
        )
    if private is not None:
        return f"Map the file with {private}, or clone the tensor before it is changed in place."
    return _FILE


def _is_file(place: Place) -> bool:
    """Whether the memory is that of a file: also where a tensor was made of it."""
    mapped = place.mapping is not None and place.mapping.path.startswith("/")
    return place.kind == "file-mapping" or (place.kind == "in-storage" and mapped)
