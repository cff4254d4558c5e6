"""FSDP2: the units below a root, recorded when its forward begins.

A unit's parameters are listed in the order of its FSDPParam objects, which is the order of its operators' tensors.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pytracer.blackbox.numbers import TensorRole
from pytracer.record.bootstrap.patches import Patches
from pytracer.record.core import Core
from pytracer.record.torch.fsdp_common import Unit, best_effort, root_name, storage_addr
from pytracer.record.torch.scopes import within

if TYPE_CHECKING:
    from pytracer.record.torch_objects import FsdpParam, FsdpParamGroup, FsdpState

_SUBJECT = "the units of fully_shard"

patches = Patches()
_units: weakref.WeakKeyDictionary[object, Unit] = weakref.WeakKeyDictionary()  # by FSDPParamGroup
_roots: weakref.WeakKeyDictionary[object, str] = weakref.WeakKeyDictionary()  # by FSDPState


class _Tensor(ctypes.Structure):
    """blackbox::ScopedTensor."""

    _fields_ = (
        ("order", ctypes.c_uint32), ("role", ctypes.c_uint32), ("addr", ctypes.c_uint64), ("nbytes", ctypes.c_uint64),
        ("scope_id", ctypes.c_uint32), ("epoch", ctypes.c_uint32), ("index", ctypes.c_uint32),
        ("count", ctypes.c_uint32), ("mono_ns", ctypes.c_uint64),
    )  # fmt: skip


def install(box: Core) -> None:
    """Wraps FSDPState._root_pre_forward, where torch has set the names, and FSDPParamGroup.wait_for_unshard."""
    from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
    from torch.distributed.fsdp._fully_shard._fsdp_state import FSDPState

    def note_root(state: FsdpState) -> None:
        if getattr(state, "_is_root", False):
            best_effort(box, _SUBJECT, _note_root, box, state)

    def note_unsharded(group: FsdpParamGroup) -> None:
        unit = _units.get(group)
        if unit is not None and unit.by_hand:
            best_effort(box, _SUBJECT, _note_unsharded, box, group, unit)

    patches.after(FSDPState, "_root_pre_forward", note_root)
    patches.after(FSDPParamGroup, "wait_for_unshard", note_unsharded)


def _note_root(box: Core, state: FsdpState) -> None:
    root = _roots.get(state)
    if root is None:
        root = _roots[state] = root_name(type(state._modules[0]).__name__.removeprefix("FSDP"))
    for group in _groups(state):
        unit = _units.get(group)
        if unit is None:
            unit = _units[group] = Unit(root, group._module_fqn or "")
        if unit.is_time():
            _note_unit(box, group, unit)


def _groups(state: FsdpState) -> Iterator[FsdpParamGroup]:
    for each in state._state_ctx.all_states:
        groups = getattr(each, "_fsdp_param_groups", None)  # torch 2.13, 2.14
        if groups is None:
            only = each._fsdp_param_group  # torch 2.11
            groups = [only] if only is not None else []
        yield from groups


def _note_unit(box: Core, group: FsdpParamGroup, unit: Unit) -> None:
    mesh = group.mesh_info
    world = getattr(mesh, "shard_mesh_size", 1)
    params = group.fsdp_params
    # No operator of FSDP writes their unsharded parameters: nothing to gather, or gathered into temporaries first.
    unit.by_hand = world == 1 or any(getattr(param.fsdp_placement, "dim", 0) != 0 for param in params)
    unit.note(
        box,
        {
            "wrapper": "fully_shard",
            "world_size": world,
            "shard_rank": getattr(mesh, "shard_mesh_rank", 0),
            "replicas": getattr(mesh, "replicate_mesh_size", 1),
            "parameters": [_describe(param) for param in params],
        },
    )


def _describe(param: FsdpParam) -> dict[str, object]:
    data = param._sharded_param_data
    return {
        "fqn": param._param_fqn or "?",
        "numel": math.prod(param._orig_size),
        "shard_numel": data.numel(),  # padded to the size of the largest shard
        "itemsize": data.element_size(),
        "addr": storage_addr(data),
        "placements": [str(item) for item in param._sharding_spec.placements],
    }


def _note_unsharded(box: Core, group: FsdpParamGroup, unit: Unit) -> None:
    if not box.lib.pytracer_open_scoped_tensors():  # else the first operator of FSDP opens them, in the backward
        return
    tensors = [output for param in group.fsdp_params for output in param.all_gather_outputs]
    found = (_Tensor * len(tensors))()
    for place, tensor in zip(found, tensors, strict=True):
        place.addr, place.nbytes = storage_addr(tensor), tensor.nbytes
    scope_id, role = unit.scope("FSDP::all_gather_copy_out", box), TensorRole.UNSHARDED_PARAMETER
    within(box, scope_id, box.lib.pytracer_scoped_tensors, role, found, len(tensors))
