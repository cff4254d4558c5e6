"""Is an address a device's? Evidence from its allocator and the memory map of the process."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._patterns import Pattern
from pytracer._text import size_words
from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.evidence.native.native_stack import image_name
from pytracer.analyze.naming import short_file
from pytracer.analyze.platform.signals import SIGBUS, SIGSEGV
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Storage
from pytracer.report.job import Confidence

_DEVICE_FILES = Pattern(r"/dev/(nvidia|kfd|dri/|accel/|davinci|habanalabs|hl\d)")
_DRIVERS = ("libcuda.so", "libhsa-runtime64.so", "libze_loader.so", "libamdhip64.so")
# The CUDA driver reserves address space for devices without access rights. glibc's arenas are at most 64 MiB of it.
RESERVED_BYTES = 256 << 20


def device_confidence(view: ProcessView) -> Confidence | None:
    """The confidence that host code accessed a device's memory; None without evidence."""
    place, crash = view.place, view.crash
    if place is None or crash is None or not view.is_fault or crash.signal not in (SIGSEGV, SIGBUS):
        return None
    if place.kind == "device-memory" and (place.storage is not None or place.segment is not None):
        return "certain"
    if place.mapping is None or place.storage is not None:
        return None
    mapping = place.mapping
    if _DEVICE_FILES.match(mapping.path):
        return "certain"
    reserved = mapping.permissions.startswith("---") and not mapping.path
    if not reserved or mapping.end - mapping.start < RESERVED_BYTES:
        return None
    return "likely" if device_driver(view) is not None else None


def device_words(place: Place) -> str | None:
    """`128 bytes into DDP bucket 0 of Net (generation 1) on cuda:0`; None for memory that torch's allocator has not."""
    storage, segment = place.storage, place.segment
    if storage is not None:
        return f"{place.offset_bytes} bytes into {block_words(storage, place.names)}"
    if segment is None:
        return None
    what = "memory of torch's allocator in which no tensor lies"
    return f"{what if segment.live else 'memory that torch has given back to the driver'}, on cuda:{segment.device}"


def made_words(storage: Storage) -> str:
    """`, allocated at train.py:12`; empty if that was not recorded."""
    frame = storage.allocated_by.place
    return f", allocated at {short_file(frame.file)}:{frame.line}" if frame is not None else ""


def block_words(storage: Storage, names: Sequence[str] = ()) -> str:
    """`DDP bucket 0 of Net (generation 1) on cuda:0`, `a live block of 4.0 MiB on cuda:0`."""
    name = names[0] if names else f"a {_state(storage)} block of {size_words(storage.nbytes)}"
    return f"{name} on {storage.device}"


def _state(storage: Storage) -> str:
    return "freed but still awaited" if storage.awaited else storage.state


def device_driver(view: ProcessView) -> str | None:
    """The library of a device's driver that the process had loaded."""
    crash = view.crash
    if crash is None:
        return None
    paths = [item.path for item in crash.images] + [item.path for item in crash.mappings]
    names = [image_name(path) for path in dict.fromkeys(paths)]
    return next((name for name in names if name.startswith(_DRIVERS)), None)
