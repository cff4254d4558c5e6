"""Kernels that Python launches without an operator: of Triton, inductor, torch.cuda._compile_kernel. Level ops.

Each leaves the same record as an operator: name, call site, current CUDA stream, the device memory that it is given.
"""

from __future__ import annotations

import functools
import importlib
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pytracer.record.bootstrap.dynamo import is_compiling, unseen
from pytracer.record.bootstrap.import_hook import when_imported
from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core
from pytracer.record.cuda.library import CudaLibrary

if TYPE_CHECKING:
    from pytracer.record.torch_objects import Kernel

_MOST_STORAGES = 5  # DeviceOpRecord.storages
_patches = Patches()
_compiled: weakref.WeakKeyDictionary[Kernel, str] = weakref.WeakKeyDictionary()


def install(box: Core, hooks: CudaLibrary) -> None:
    """Wraps what launches, where it is imported."""
    for module, owner, method, name in (
        ("triton.runtime.jit", "JITFunction", "run", _name_of_function),
        ("torch._inductor.runtime.triton_heuristics", "CachingAutotuner", "run", _name_of_function),
        ("torch.cuda._utils", "_CudaKernel", "__call__", _name_of_kernel),
    ):
        when_imported(module, functools.partial(_wrap, box, hooks, module, owner, method, name))

    when_imported("torch.cuda", functools.partial(_note_names, box))


def uninstall() -> None:
    """Restores what is still ours."""
    _patches.put_back()


def _wrap(box: Core, hooks: CudaLibrary, module: str, owner: str, method: str, name: Callable[[Kernel], str]) -> None:
    kind = getattr(importlib.import_module(module), owner, None)
    original = getattr(kind, method, None)
    if kind is None or original is None:  # another version's: its launches are not recorded
        return

    @functools.wraps(original)
    def launch(self: Kernel, /, *args: object, **kwargs: object) -> object:
        _record(box, hooks, name, self, args, kwargs)
        return original(self, *args, **kwargs)

    _patches.replace(kind, method, launch)


@unseen
def _record(
    box: Core,
    hooks: CudaLibrary,
    name: Callable[[Kernel], str],
    kernel: Kernel,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> None:
    if is_compiling():
        return
    try:
        listed = kwargs.get("args")  # of _CudaKernel
        given = listed if isinstance(listed, (list, tuple)) else args
        hooks.record_launch(name(kernel), _storages([*given, *kwargs.values()]))
    except Exception:
        box.lib.pytracer_count_hook_error()


def _storages(arguments: Iterable[object]) -> list[int]:
    import torch

    tensors = [item for item in arguments if type(item) in (torch.Tensor, torch.nn.Parameter)]
    on_device = [item for item in tensors if isinstance(item, torch.Tensor) and item.is_cuda]
    return [item.untyped_storage().data_ptr() for item in on_device[:_MOST_STORAGES]]


def _name_of_function(kernel: Kernel) -> str:
    return f"triton::{getattr(kernel.fn, '__name__', 'kernel')}"


def _name_of_kernel(kernel: Kernel) -> str:
    return f"torch.cuda::{_compiled.get(kernel, 'kernel')}"


def _note_names(box: Core) -> None:
    """A kernel of torch.cuda._compile_kernel does not know its name."""
    owner = importlib.import_module("torch.cuda")
    original = getattr(owner, "_compile_kernel", None)
    if original is None:
        return

    @functools.wraps(original)
    def compile_kernel(kernel_source: str, kernel_name: str, *args: object, **kwargs: object) -> object:
        kernel = original(kernel_source, kernel_name, *args, **kwargs)
        try:
            _compiled[kernel] = kernel_name
        except Exception:
            box.lib.pytracer_count_hook_error()
        return kernel

    _patches.replace(owner, "_compile_kernel", compile_kernel)
