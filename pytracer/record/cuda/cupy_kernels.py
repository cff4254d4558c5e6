"""Launches of CuPy's own kernels, `cupy.RawKernel` and `cupyx.jit.rawkernel`, as those of launches.py. Level ops.

CuPy is never imported here. RawKernel is a class of C, whose methods cannot be replaced: the name `cupy.RawKernel` gets
a subclass. Not recorded: kernels of RawModule, of CuPy's own functions, and those on a CUDA stream that is not torch's
current one, since a record has that of torch.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable

from pytracer.record.bootstrap.dynamo import unseen
from pytracer.record.bootstrap.import_hook import when_imported
from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core
from pytracer.record.cuda.library import CudaLibrary

_MOST_STORAGES = 5  # DeviceOpRecord.storages
_ADDRESSES = range(1 << 40, 1 << 48)  # a number of elements is smaller, a seed most often larger
_ARGUMENTS = 2  # of __call__(grid, block, args), where they are
_patches = Patches()
_classes: list[tuple[object, type]] = []  # what cupy.RawKernel was, and is now

Note = Callable[[object, str, object], None]
"""Of a kernel, the attribute that names it, and its arguments."""


def install(box: Core, hooks: CudaLibrary) -> None:
    """Wraps what launches, once the program has imported it."""

    @unseen
    def note(kernel: object, named: str, args: object) -> None:
        try:
            if isinstance(args, (list, tuple)) and _is_on_torchs_stream():
                hooks.record_launch(f"cupy::{_name(kernel, named)}", addresses(args))
        except Exception:
            box.lib.pytracer_count_hook_error()

    when_imported("cupy", functools.partial(_replace_raw_kernel, note))
    when_imported("cupyx.jit._interface", functools.partial(_wrap_compiled, note))


def uninstall() -> None:
    """Restores what is still ours; kernels that were made stay what they are."""
    _patches.put_back()
    while _classes:
        original, ours = _classes.pop()
        cupy = sys.modules.get("cupy")
        if getattr(cupy, "RawKernel", None) is ours:
            setattr(cupy, "RawKernel", original)  # noqa: B010


def addresses(args: Iterable[object]) -> list[int]:
    """Of the device memory that a kernel is given: arrays of CuPy, and plain numbers that can be nothing else."""
    array = getattr(sys.modules.get("cupy"), "ndarray", None)
    found: list[int] = []
    for item in args:
        if array is not None and type(item) is array:
            found.append(item.data.ptr)  # type: ignore[attr-defined]
        elif type(item) is int and item in _ADDRESSES:
            found.append(item)
    return found[:_MOST_STORAGES]


def _replace_raw_kernel(note: Note) -> None:
    cupy = sys.modules["cupy"]
    found = getattr(cupy, "RawKernel", None)
    if not isinstance(found, type):
        return
    original: type = found

    class Kind(type(original)):  # type: ignore[misc]
        """Kernels that RawModule makes are instances, too."""

        def __instancecheck__(cls, item: object) -> bool:
            return isinstance(item, original)

        def __subclasscheck__(cls, kind: type) -> bool:
            return issubclass(kind, original)

    class RawKernel(original, metaclass=Kind):  # type: ignore[misc]
        """Records each launch."""

        def __call__(self, grid: object, block: object, args: object, **kwargs: object) -> object:
            note(self, "name", args)
            return original.__call__(self, grid, block, args, **kwargs)

    RawKernel.__module__, RawKernel.__qualname__, RawKernel.__doc__ = "cupy", "RawKernel", original.__doc__
    _classes.append((original, RawKernel))
    setattr(cupy, "RawKernel", RawKernel)  # noqa: B010


def _wrap_compiled(note: Note) -> None:
    owner = getattr(sys.modules["cupyx.jit._interface"], "_JitRawKernel", None)
    if not isinstance(owner, type):  # another version's
        return
    original = owner.__call__

    @functools.wraps(original)
    def launch(self: object, /, *args: object, **kwargs: object) -> object:
        note(self, "_func", args[_ARGUMENTS] if len(args) > _ARGUMENTS else kwargs.get("args"))
        return original(self, *args, **kwargs)

    _patches.replace(owner, "__call__", launch)


def _name(kernel: object, named: str) -> str:
    found = getattr(kernel, named, "kernel")
    return found if isinstance(found, str) else str(getattr(found, "__name__", "kernel"))


def _is_on_torchs_stream() -> bool:
    import torch

    cupy = sys.modules["cupy"]
    if not torch.cuda.is_initialized():
        return False
    return bool(cupy.cuda.get_current_stream().ptr == torch.cuda.current_stream().cuda_stream)
