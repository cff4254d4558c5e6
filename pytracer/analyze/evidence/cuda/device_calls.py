"""Calls of the CUDA driver in which the host waits for the device: by the innermost native frames."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.native.native_stack import image_name
from pytracer.report.job import NativeFrame

_SYSTEM = Pattern(r"(libc|libpthread)[.-]|\[vdso\]|linux-vdso")
_CUDA = Pattern(r"libcuda(rt)?[.-]")
_WAITS = Pattern(
    r"cu(?:da)?(?:(?:Ctx|Device|Stream|Event|Thread)Synchronize|Memcpy(?:DtoH|HtoD|DtoD|Peer|2D|3D|Batch|Async|_)?\w*)\w*"
)
_WORKS = Pattern(r"cu(?:da)?(?:Init|Module|Library|Link|Kernel|CtxCreate|DevicePrimaryCtx|Func)\w*")


def device_call(native: Sequence[NativeFrame]) -> str | None:
    """`cuCtxSynchronize`: the driver's function, else the runtime's, inside of which a thread is, if that one waits."""
    return next((name for name in _calls(native) if _WAITS.fullmatch(name)), None)


def driver_call(native: Sequence[NativeFrame]) -> str | None:
    """`cuStreamCreateWithPriority`: any call but those that load and compile, which take long by themselves.

    Many of them wait for the device, such as a launch when its queue is full, or an allocation.
    """
    names = _calls(native)
    return names[0] if names and not any(_WORKS.fullmatch(name) for name in names) else None


def _calls(native: Sequence[NativeFrame]) -> list[str]:
    names = []
    for frame in native:
        image = image_name(frame.image)
        if _CUDA.match(image):
            names += [frame.function] if frame.function else []
        elif not _SYSTEM.match(image):
            break
    return [name.removesuffix("_v2") for name in names if name.startswith("cu")]
