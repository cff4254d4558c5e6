"""Is an address a device's? What the memory map of a process tells about memory that the CPU must not touch."""

from __future__ import annotations

import re

from pytracer.analyze.native import image_name
from pytracer.analyze.signals import SIGBUS, SIGSEGV
from pytracer.analyze.view import ProcessView

_DEVICE_FILES = re.compile(r"/dev/(nvidia|kfd|dri/|accel/|davinci|habanalabs|hl\d)")
_DRIVERS = ("libcuda.so", "libhsa-runtime64.so", "libze_loader.so", "libamdhip64.so")
# The CUDA driver reserves address space for devices without access rights. glibc's arenas are at most 64 MiB of it.
RESERVED_BYTES = 256 << 20


def device_confidence(view: ProcessView) -> str | None:
    """How sure it is that host code touched a device's memory; None when nothing says so."""
    place, crash = view.place, view.crash
    if place is None or crash is None or place.mapping is None or not view.is_fault:
        return None
    if crash.signal not in (SIGSEGV, SIGBUS) or place.storage is not None:
        return None
    mapping = place.mapping
    if _DEVICE_FILES.match(mapping.path):
        return "certain"
    reserved = mapping.permissions.startswith("---") and not mapping.path
    if not reserved or mapping.end - mapping.start < RESERVED_BYTES:
        return None
    return "likely" if device_driver(view) is not None else None


def device_driver(view: ProcessView) -> str | None:
    """The library of a device's driver that the process had loaded."""
    crash = view.crash
    if crash is None:
        return None
    paths = [item.path for item in crash.images] + [item.path for item in crash.mappings]
    names = [image_name(path) for path in dict.fromkeys(paths)]
    return next((name for name in names if name.startswith(_DRIVERS)), None)
