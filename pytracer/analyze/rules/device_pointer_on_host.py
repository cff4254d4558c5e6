"""device-pointer-on-host: code on the CPU used an address that belongs to a device.

What: the fault address lies in a mapping of a device (/dev/nvidia*, /dev/kfd), or in the address space that the
driver reserves for devices and that the CPU has no rights to.

Why it happens: `data_ptr()` of a CUDA tensor was passed to native code that works on the CPU, or to ctypes or NumPy
through a handmade pointer; a C++ extension did not check the tensor's device.

What to do: check the device before the address is taken (`tensor.device`, TORCH_CHECK(t.is_cpu()) in C++), or copy
with `.cpu()` first.

How it can be wrong: a reservation is recognised by its size and by the driver being loaded; another library may
reserve address space in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._words import hex_addr, size_words
from pytracer.analyze.device_memory import device_confidence, device_driver
from pytracer.analyze.memory_fault import MemoryFaultRule
from pytracer.analyze.view import Draft, Outcome, ProcessView, draft, not_found, subject_words
from pytracer.analyze.wording import access_verb, collective_evidence, fault_evidence, in_function, python_evidence


class DevicePointerOnHost(MemoryFaultRule):
    """Fires for addresses in a device's mapping or reservation."""

    id = "device-pointer-on-host"
    needs = ("crash",)

    def applies(self, view: ProcessView) -> bool:
        """See MemoryFaultRule."""
        return device_confidence(view) is not None

    def explain(self, views: Sequence[ProcessView]) -> Draft:
        """See MemoryFaultRule."""
        view = views[0]
        confidence = device_confidence(view) or "possible"
        return draft(
            self.id,
            "device-pointer-on-host",
            confidence,
            views,
            f"{subject_words(views)} {access_verb(view)} a device's memory from code on the CPU, "
            f"{hex_addr(view.place.addr if view.place else 0)}{in_function(view)}.",
            [fault_evidence(view), _owner(view), python_evidence(view), collective_evidence(views)],
            "Check the tensor's device before its address is passed to code for the CPU, or copy it with .cpu() first.",
            [] if confidence == "certain" else ["the device's own list of its memory"],
        )

    def otherwise(self, faults: Sequence[ProcessView]) -> Outcome:
        """See MemoryFaultRule."""
        return not_found("no fault address belonged to a device")


def _owner(view: ProcessView) -> str | None:
    mapping = view.place.mapping if view.place else None
    if mapping is None:
        return None
    if mapping.path:
        return f"the address lies in a mapping of {mapping.path}"
    return (
        f"the address lies in {size_words(mapping.end - mapping.start)} of address space that nobody may access, "
        f"as the driver ({device_driver(view)}) keeps for devices"
    )
