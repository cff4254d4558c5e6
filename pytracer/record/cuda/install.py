"""The CUDA half: records torch's caching allocator, CUDA graphs and NCCL once the program uses CUDA.

Nothing here creates a CUDA context: the tracker is attached when torch initializes CUDA, or now if it has done so.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType

from pytracer.blackbox.note_codes import NoteCode
from pytracer.record.core import Core

_native_cuda: ModuleType | None = None


def install(box: Core, native: ModuleType, level: str) -> None:
    """Prepares everything; without CUDA in torch, or without `_native_cuda`, a note names what is missing."""
    global _native_cuda
    import torch

    if torch.version.cuda is None:
        return
    try:
        _native_cuda = importlib.import_module("pytracer._native_cuda")
    except ImportError as error:
        box.note(
            NoteCode.CUDA,
            f"CUDA devices are not followed: {error}; build pytracer again where CUDA's headers are found",
        )
        return
    _native_cuda.set_call_site(native.call_site_address())
    from pytracer.record.cuda import graphs, streams

    graphs.install(box, _native_cuda)
    if level == "ops":
        streams.install(box)
    torch.cuda._lazy_call(functools.partial(_attach, box, _native_cuda))


def uninstall() -> None:
    """Stops recording; the tracker itself cannot be detached and does nothing from now on."""
    if _native_cuda is None:
        return
    from pytracer.record.cuda import graphs, poller, streams

    graphs.uninstall()
    streams.uninstall()
    poller.stop()
    _native_cuda.follow(False)


def _attach(box: Core, native_cuda: ModuleType) -> None:
    """Runs inside torch's initialization of CUDA, which an exception would break."""
    try:
        refusal = native_cuda.attach()
        if refusal:
            box.note(NoteCode.CUDA, f"memory of CUDA devices is not followed: {refusal}")
        native_cuda.follow(True)
        native_cuda.install_stream_probe()
        from pytracer.record.cuda import poller

        poller.start(box, native_cuda)
    except Exception as error:
        box.lib.pytracer_count_hook_error()
        box.note(NoteCode.CUDA, f"CUDA devices are not followed: {type(error).__name__}: {error}")
