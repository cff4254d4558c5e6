"""The CUDA half: records torch's caching allocator, CUDA graphs and NCCL once the program uses CUDA.

Nothing here creates a CUDA context: the tracker is attached when torch initializes CUDA, or now if it has done so.
"""

from __future__ import annotations

import functools

from pytracer._torch_libraries import BUILD_COMMAND, Libraries
from pytracer.blackbox.note_codes import NoteCode
from pytracer.record.core import Core
from pytracer.record.cuda.library import CudaLibrary
from pytracer.record.torch.library import TorchLibrary

_hooks: CudaLibrary | None = None


def install(box: Core, hooks: TorchLibrary, libraries: Libraries, level: str) -> None:
    """Prepares everything; without CUDA in torch, or without libpytracer_cuda, a note names what is missing."""
    global _hooks
    import torch

    if torch.version.cuda is None:
        return
    try:
        _hooks = CudaLibrary(libraries, box)
    except (OSError, AttributeError) as error:
        box.note(
            NoteCode.CUDA,
            f"CUDA devices are not followed: {error}; `{BUILD_COMMAND}` adds that where CUDA's headers are found",
        )
        return
    _hooks.set_call_site(hooks.call_site_function())
    from pytracer.record.cuda import cupy_kernels, graphs, launches, streams

    graphs.install(box, _hooks)
    if level == "ops":
        streams.install(box)
        launches.install(box, _hooks)
        cupy_kernels.install(box, _hooks)
    torch.cuda._lazy_call(functools.partial(_attach, box, _hooks, level))


def uninstall() -> None:
    """Stops recording; the tracker itself cannot be detached and does nothing from now on."""
    if _hooks is None:
        return
    from pytracer.record.cuda import cupy_kernels, graphs, launches, poller, streams

    graphs.uninstall()
    streams.uninstall()
    launches.uninstall()
    cupy_kernels.uninstall()
    poller.stop()
    _hooks.follow(False)
    _hooks.follow_operators(False)


def _attach(box: Core, hooks: CudaLibrary, level: str) -> None:
    """Runs inside torch's initialization of CUDA, which an exception would break."""
    try:
        refusal = hooks.attach()
        if refusal:
            box.note(NoteCode.CUDA, f"memory of CUDA devices is not followed: {refusal}")
        hooks.follow(True)
        hooks.install_stream_probe()
        hooks.watch_assertions()
        if level == "ops":
            hooks.follow_operators(True)
        from pytracer.record.cuda import poller

        poller.start(box, hooks)
    except Exception as error:
        box.lib.pytracer_count_hook_error()
        box.note(NoteCode.CUDA, f"CUDA devices are not followed: {type(error).__name__}: {error}")
