"""FSDP1 (FullyShardedDataParallel): its units, each with one flat parameter, and scopes around their communication.

Its ranges do not identify units, so scopes are set here, with the names that FSDP2's ranges would have.
"""

from __future__ import annotations

import functools
import importlib
import weakref
from typing import TYPE_CHECKING

from pytracer.record.bootstrap.dynamo import is_compiling
from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core
from pytracer.record.torch.fsdp_common import Unit, best_effort, root_name, storage_addr
from pytracer.record.torch.scopes import within

if TYPE_CHECKING:
    from pytracer.record.torch_objects import FlatParamHandle, Module

_SUBJECT = "the units of FullyShardedDataParallel"
_WRAPPED = "_fsdp_wrapped_module"

patches = Patches()
_units: weakref.WeakKeyDictionary[object, Unit] = weakref.WeakKeyDictionary()  # by FlatParamHandle


def install(box: Core) -> None:
    """Wraps the root's lazy initialization, FlatParamHandle.unshard and the reduction of a handle's gradients."""
    from torch.distributed.fsdp._exec_order_utils import _ExecOrderData
    from torch.distributed.fsdp._flat_param import FlatParamHandle

    runtime = importlib.import_module("torch.distributed.fsdp._runtime_utils")
    init, unshard, reduce_grad = _ExecOrderData.init, FlatParamHandle.unshard, runtime._reduce_grad

    @functools.wraps(init)
    def init_and_name(self: object, /, state: object, root_module: Module, *args: object, **kwargs: object) -> object:
        best_effort(box, _SUBJECT, _name_units, root_module)
        return init(self, state, root_module, *args, **kwargs)

    @functools.wraps(unshard)
    def unshard_in_scope(self: FlatParamHandle, /, *args: object, **kwargs: object) -> object:
        if is_compiling():
            return unshard(self, *args, **kwargs)
        unit = best_effort(box, _SUBJECT, _unit_of, box, self)
        if unit is None:
            return unshard(self, *args, **kwargs)
        return within(box, unit.scope("FSDP::all_gather", box), unshard, self, *args, **kwargs)

    @functools.wraps(reduce_grad)
    def reduce_grad_in_scope(state: object, handle: FlatParamHandle, *args: object, **kwargs: object) -> object:
        unit = None if is_compiling() else _units.get(handle)
        if unit is None:
            return reduce_grad(state, handle, *args, **kwargs)
        name = unit.scope("FSDP::post_backward_reduce", box)
        return within(box, name, reduce_grad, state, handle, *args, **kwargs)

    patches.replace(_ExecOrderData, "init", init_and_name)
    patches.replace(FlatParamHandle, "unshard", unshard_in_scope)
    patches.replace(runtime, "_reduce_grad", reduce_grad_in_scope)


def _name_units(root_module: Module) -> None:
    inner = getattr(root_module, _WRAPPED, root_module)
    root = root_name(type(inner).__name__)
    for name, module in root_module.named_modules():
        handle = getattr(module, "_handle", None)
        if handle is not None and handle not in _units:
            _units[handle] = Unit(root, _plain(name))


def _plain(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in ("", _WRAPPED, "_checkpoint_wrapped_module"))


def _unit_of(box: Core, handle: FlatParamHandle) -> Unit:
    unit = _units.get(handle)
    if unit is None:  # wrapped before enable(), and after its root's first forward
        unit = _units[handle] = Unit("?", type(handle._fully_sharded_module).__name__)
    if unit.is_time():
        unit.note(box, _describe(handle, unit))
    return unit


def _describe(handle: FlatParamHandle, unit: Unit) -> dict[str, object]:
    flat = handle.flat_param
    shard = getattr(flat, "_local_shard", flat)
    parameters, offset, names = [], 0, iter(flat._fqns)
    for numel, padding in zip(flat._numels_with_padding, flat._is_padding_mask, strict=True):
        if not padding:
            name = _plain(next(names))
            fqn = f"{unit.fqn}.{name}" if unit.fqn else name
            parameters.append({"fqn": fqn, "offset": offset, "numel": numel})
        offset += numel
    return {
        "wrapper": "FullyShardedDataParallel",
        "strategy": handle._sharding_strategy.name,
        "flat": True,
        "world_size": handle.world_size,
        "shard_rank": handle.rank,
        "shard": {
            "addr": storage_addr(shard),
            "numel": shard.numel(),  # padded
            "itemsize": shard.element_size(),
        },
        "parameters": parameters,
    }
