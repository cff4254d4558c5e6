"""device-pointer-on-host: code on the CPU used an address that belongs to a device.

What: the fault address lies in a block or a segment of torch's allocator for a CUDA device; or in a mapping of a
device (/dev/nvidia*, /dev/kfd), or in the address space that the driver reserves for devices and that the CPU has no
rights to.

Why it happens: `data_ptr()` of a CUDA tensor was passed to native code that works on the CPU, or to ctypes or NumPy
through a handmade pointer; a C++ extension did not check the tensor's device.

What to do: check the device before the address is taken (`tensor.device`, TORCH_CHECK(t.is_cpu()) in C++), or copy
with `.cpu()` first.

How it can be wrong: where torch's allocator does not know the address, a reservation is recognised by its size and by
the driver being loaded; another library may reserve address space in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._text import hex_addr, size_words
from pytracer.analyze.address_space.device_memory import device_confidence, device_driver, device_words
from pytracer.analyze.evidence.lifetime.variables import line_words, variable_name
from pytracer.analyze.evidence.lifetime.where_made import line_that_made
from pytracer.analyze.evidence.phrases import (
    access_verb,
    allocation_evidence,
    bucket_evidence,
    collective_evidence,
    fault_evidence,
    free_evidence,
    in_function,
    python_evidence,
)
from pytracer.analyze.naming import introduction, place_words
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.rules.fault import MemoryFaultRule
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence


class DevicePointerOnHost(MemoryFaultRule[None]):
    """Fires for addresses in a device's mapping or reservation."""

    id = "device-pointer-on-host"
    needs = ("crash",)

    def judge(self, view: ProcessView) -> Judgement[None] | None:
        """See MemoryFaultRule."""
        confidence = device_confidence(view)
        return Judgement("device-pointer-on-host", confidence, (view,), None) if confidence is not None else None

    def describe(self, job: JobView, judgement: Judgement[None]) -> Description:
        """See MemoryFaultRule."""
        view = judgement.views[0]
        return Description(
            f"{introduction(judgement.views)} {access_verb(view)} a device's memory from code on the CPU, "
            f"{hex_addr(view.place.addr if view.place else 0)}{in_function(view)}{_what(view)}.",
            [
                fault_evidence(view),
                _owner(view),
                bucket_evidence(view),
                _stream(view),
                _graph(view),
                allocation_evidence(view.storage),
                free_evidence(view.storage),
                python_evidence(view),
                collective_evidence(judgement.views),
            ],
            _advice(view),
            [] if judgement.confidence == "certain" else ["the device's own list of its memory"],
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> NoFinding:
        """See MemoryFaultRule."""
        return not_found("no fault address belonged to a device")


def _what(view: ProcessView) -> str:
    words, name = device_words(view.place) if view.place else None, _variable(view)
    if not words:
        return ""
    return f": `{name}`, {words}" if name is not None else f": {words}"


def _variable(view: ProcessView) -> str | None:
    """The program's variable of the innermost frame that holds the tensor."""
    storage = view.place.storage if view.place is not None else None
    return variable_name(view, storage.base) if storage is not None else None


def _advice(view: ProcessView) -> str:
    storage, name = view.place.storage if view.place is not None else None, _variable(view)
    if storage is None or name is None:
        return (
            "Check the tensor's device before its address is passed to code for the CPU, or copy it with .cpu() first."
        )
    made = line_that_made(view, storage.base)
    origin = f", which {made} made," if made is not None else ""
    return (
        f"`{name}`{origin} is on {storage.device}: at {line_words(view)} pass the address of `{name}.cpu()`, held by a "
        f"variable for as long as it is used, or move `{name}` to the CPU before."
    )


def _stream(view: ProcessView) -> Evidence | None:
    storage = view.place.storage if view.place else None
    if storage is None or storage.stream is None:
        return None
    stream = f"stream {hex_addr(storage.stream)}" if storage.stream else "the default stream"
    kept = "; the program had freed it, and it was kept because other streams still used it" if storage.awaited else ""
    return Evidence(
        "cuda-stream",
        f"the block was allocated for {stream}{kept}",
        device=storage.device,
        stream=hex_addr(storage.stream),
        base=hex_addr(storage.base),
    )


def _graph(view: ProcessView) -> Evidence | None:
    use = view.fault.cuda_graph if view.fault else None
    if use is None:
        return None
    where = f", captured at {place_words(use.captured_by)}" if use.captured_by else ""
    what = "an input" if use.role == "static-input" else "memory of the pool"
    return Evidence(
        "cuda-graph",
        f"it is {what} of CUDA graph {use.id}{where}" + (f"; {use.note}" if use.note else ""),
        cuda_graph=use.id,
        state=use.role,
        python=use.captured_by,
    )


def _owner(view: ProcessView) -> Evidence | None:
    place = view.place
    if place is not None and (place.storage is not None or place.segment is not None):
        words = "torch's caching allocator has the address as memory of a device"
        return Evidence("device-memory", words, addr=hex_addr(place.addr))
    mapping = view.place.mapping if view.place else None
    if mapping is None:
        return None
    words = (
        f"the address lies in {size_words(mapping.end - mapping.start)} of address space that nobody may access, "
        f"as the driver ({device_driver(view)}) keeps for devices"
    )
    if mapping.path:
        words = f"the address lies in a mapping of {mapping.path}"
    return Evidence(
        "mapping",
        words,
        addr=hex_addr(mapping.start),
        nbytes=mapping.end - mapping.start,
        path=mapping.path or None,
        permissions=mapping.permissions,
    )
