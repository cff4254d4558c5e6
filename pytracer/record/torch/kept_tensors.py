"""Which lists, dicts and attributes held tensors of a device when it was full, and whether with their autograd graphs.

Only objects of Python's own containers and torch's own tensors are looked at: asking those runs no code of the program.
"""

from __future__ import annotations

import collections
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FunctionType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from pytracer.record.torch.frame_variables import programs_frames, without_modes
from pytracer.record.torch.near_names import TABLES, attributes_of

if TYPE_CHECKING:
    import torch

_ERROR = "OutOfMemoryError"
_LISTS = (list, tuple, set, collections.deque)
_FEW = 8
_MOST = 4
_LOOKED_AT = 4096  # items of one container, those inside included
_LOOKED_AT_IN_ALL = 1 << 17  # items
_NAMES = 256
_LEVELS = 3
_NAME_CHARACTERS = 60
_OF_TRAINING = ("_parameters", "_buffers", "_modules", "state", "param_groups")  # of modules and optimizers


@dataclass
class _Kept:
    count: int = 0
    nbytes: int = 0
    graphs: int = 0
    left: int = _LOOKED_AT
    seen: set[int] = field(default_factory=set)
    storages: set[int] = field(default_factory=set)


def kept_tensors(error: BaseException, trace: TracebackType | None) -> list[dict[str, str]]:
    """`tensors in losses`: `63, 252 bytes on devices, 63 with graph`, the most first; `graph of total`: `yes`."""
    if type(error).__name__ != _ERROR or not type(error).__module__.startswith("torch"):
        return []
    with without_modes():
        found: dict[str, _Kept] = {}
        graphs: dict[str, None] = {}
        seen: set[int] = set()
        left = _LOOKED_AT_IN_ALL
        for name, value in _variables(trace):
            if _is_tensor(value):
                if _is_number_with_graph(value):
                    graphs[name] = None
            elif _is_container(value) and id(value) not in seen and left > 0:
                seen.add(id(value))
                kept = _Kept()
                _count(value, kept, _LEVELS)
                left -= _LOOKED_AT - kept.left
                if kept.count >= _FEW:
                    found.setdefault(name, kept)
    most = sorted(found.items(), key=lambda item: -item[1].count)[:_MOST]
    return [
        *({"name": f"tensors in {name}", "value": _words(kept)} for name, kept in most),
        *({"name": f"graph of {name}", "value": "yes"} for name in itertools.islice(graphs, _MOST)),
    ]


def _is_parameter(value: object) -> bool:
    """Lists of them hold what the model holds."""
    return type(value) is getattr(getattr(sys.modules.get("torch"), "nn", None), "Parameter", None)


def _is_number_with_graph(value: object) -> bool:
    tensor: Any = value
    return not tensor.shape and _has_graph(tensor)


def _words(kept: _Kept) -> str:
    return f"{kept.count}, {kept.nbytes} bytes on devices, {kept.graphs} with graph"


def _variables(trace: TracebackType | None) -> Iterator[tuple[str, object]]:
    """Those of the program's frames, those of modules that they name, and attributes of objects: `recorder.maps`."""
    for frame in programs_frames(trace):
        used = {name: frame.f_globals[name] for name in frame.f_code.co_names if name in frame.f_globals}
        for name, value in itertools.islice({**frame.f_locals, **used}.items(), _NAMES):
            if name.startswith("__") or issubclass(type(value), (type, ModuleType, FunctionType)):
                continue
            yield name[:_NAME_CHARACTERS], value
            if _is_container(value) or _is_tensor(value):
                continue
            for inner, held in itertools.islice(attributes_of(value).items(), _NAMES):
                if type(inner) is str and inner not in _OF_TRAINING:
                    yield f"{name}.{inner}"[:_NAME_CHARACTERS], held


def _is_container(value: object) -> bool:
    return type(value) in _LISTS or type(value) in TABLES


def _is_tensor(value: object) -> bool:
    """Of exactly torch's own types."""
    module = sys.modules.get("torch")
    kinds = (getattr(module, "Tensor", None), getattr(getattr(module, "nn", None), "Parameter", None))
    return module is not None and type(value) in kinds


def _has_graph(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad and not tensor.is_leaf


def _count(value: Any, kept: _Kept, levels: int) -> None:
    """The tensors in a container and those inside of it. A tensor of the host may have a graph on the device, too."""
    items = value.values() if type(value) in TABLES else value
    for item in items:
        kept.left -= 1
        if kept.left < 0:
            return
        if _is_container(item):
            if levels:
                _count(item, kept, levels - 1)
        elif _is_tensor(item) and id(item) not in kept.seen and not _is_parameter(item):
            kept.seen.add(id(item))
            _add(item, kept)


def _add(item: object, kept: _Kept) -> None:
    tensor: Any = item
    on_device = tensor.device.type not in ("cpu", "meta")
    graph = _has_graph(tensor)
    kept.count += on_device or graph
    kept.graphs += graph
    if on_device:
        storage = tensor.untyped_storage()
        kept.nbytes += storage.nbytes() if storage._cdata not in kept.storages else 0
        kept.storages.add(storage._cdata)
