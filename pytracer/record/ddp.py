"""What DistributedDataParallel knows: names of parameters and buffers, and the layout of its gradient buckets.

The Reducer releases its first buckets at the start of the second forward and makes new ones in the order in which
gradients became ready (with static_graph one iteration later, with find_unused_parameters never). An old address may be
reused by a new bucket, so that a bucket is known by address, size and generation.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

from pytracer.blackbox.numbers import Entry
from pytracer.record import distributed
from pytracer.record.core import Core
from pytracer.record.patches import Patches

CLOSE_ITERATIONS = 8  # buckets are rebuilt within the first three
LATER_EVERY = 64

_patches = Patches()
_wrapped: weakref.WeakKeyDictionary[Any, _Wrapped] = weakref.WeakKeyDictionary()
_names_used: dict[str, int] = {}
_complained = False  # one note is enough: it fails in every iteration or in none


class _Wrapped:
    """One DDP module: its name, its parameters' names, and the layout that was noted last."""

    def __init__(self, module: Any) -> None:
        kind = type(module.module).__name__
        _names_used[kind] = _names_used.get(kind, 0) + 1
        self.name = kind if _names_used[kind] == 1 else f"{kind} #{_names_used[kind]}"
        self.kind = kind
        # _cdata is the address of the TensorImpl, by which the Reducer's parameters are recognized
        self.fqns = {parameter._cdata: fqn for fqn, parameter in module.module.named_parameters()}
        self.layout: Any = None
        self.generation = -1
        self.forwards = 0


def install(box: Core, native: Any) -> None:
    """Wraps DistributedDataParallel.__init__ and ._pre_forward."""
    from torch.nn.parallel import DistributedDataParallel

    init, pre_forward = DistributedDataParallel.__init__, DistributedDataParallel._pre_forward

    @functools.wraps(init)
    def init_and_note(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        _guarded(box, _note_module, box, native, self)

    @functools.wraps(pre_forward)
    def pre_forward_and_note(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = pre_forward(self, *args, **kwargs)  # rebuilds the buckets when it is time
        if not _compiling():
            _guarded(box, _refresh, box, native, self)
        return result

    _patches.replace(DistributedDataParallel, "__init__", init_and_note)
    _patches.replace(DistributedDataParallel, "_pre_forward", pre_forward_and_note)


def uninstall() -> None:
    """Puts back what is still ours."""
    _patches.put_back()


def _compiling() -> bool:
    from torch.compiler import is_compiling

    return bool(is_compiling())


def _guarded(box: Core, act: Any, *args: Any) -> None:
    try:
        act(*args)
    except Exception as error:  # private attributes of another torch version, at worst
        box.lib.pytracer_count_hook_error()
        global _complained
        if not _complained:
            _complained = True
            box.note(f"DDP's buckets could not be noted: {type(error).__name__}: {error}")


def _note_module(box: Core, native: Any, module: Any) -> None:
    distributed.note_rank(box)
    wrapped = _wrapped[module] = _Wrapped(module)
    tensors = [("parameter", name, tensor) for name, tensor in module.module.named_parameters()]
    tensors += [("buffer", name, tensor) for name, tensor in module.module.named_buffers()]
    box.journal(
        Entry.MODULE,
        {
            "module": wrapped.name,
            "class": wrapped.kind,
            "wrapper": "DistributedDataParallel",
            "tensors": [_describe(role, name, tensor) for role, name, tensor in tensors],
        },
    )
    _write_layout(box, native, module, wrapped)


def _describe(role: str, fqn: str, tensor: Any) -> dict[str, Any]:
    storage = tensor.untyped_storage()
    return {
        "fqn": fqn,
        "role": role,
        "addr": tensor.data_ptr(),
        "nbytes": tensor.numel() * tensor.element_size(),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "storage_addr": storage.data_ptr(),
        "storage_nbytes": storage.nbytes(),
    }


def _refresh(box: Core, native: Any, module: Any) -> None:
    wrapped = _wrapped.get(module)
    if wrapped is None:
        _note_module(box, native, module)  # wrapped before enable()
        return
    wrapped.forwards += 1
    if wrapped.forwards <= CLOSE_ITERATIONS or wrapped.forwards % LATER_EVERY == 0:
        _write_layout(box, native, module, wrapped)


def _write_layout(box: Core, native: Any, module: Any, wrapped: _Wrapped) -> None:
    buckets = native.buckets(module.reducer)
    if buckets == wrapped.layout:  # with its parameters: a new bucket may lie where an old one of the same size did
        return
    wrapped.layout = buckets
    wrapped.generation += 1
    box.journal(
        Entry.BUCKETS,
        {
            "module": wrapped.name,
            "generation": wrapped.generation,
            "has_rebuilt": wrapped.generation > 0,
            "buckets": [
                {
                    "index": index,
                    "addr": addr,
                    "nbytes": nbytes,
                    "parameters": [
                        {"fqn": wrapped.fqns.get(cdata, "?"), "offset_bytes": offset, "nbytes": size}
                        for cdata, offset, size in parameters
                    ],
                }
                for index, addr, nbytes, parameters in buckets
            ],
        },
    )
