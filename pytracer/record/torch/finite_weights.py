"""Whether the parameters of a module, and their gradients, are finite: counts, for an exception that NaN led to.

Only the beginning of a large one is read, by the kernel: what a NaN loss has updated is NaN everywhere.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from pytracer.record.config import records_values
from pytracer.record.torch.near_names import TABLES, attributes_of
from pytracer.record.torch.tensor_numbers import first_numbers

if TYPE_CHECKING:
    import torch

_MOST = 48  # parameters of a module
_MOST_MODULES = 3  # of a frame
_MOST_LAYERS = 256
_LOOKED_AT = 256


def finite_weights(frame: FrameType) -> list[dict[str, str]]:
    """`parameters of model`: `12 of 12 with nan`, or `12, finite` where all were read whole; of gradients the same."""
    if not records_values() or "torch" not in sys.modules:
        return []
    found: list[dict[str, str]] = []
    for name, module in itertools.islice(_modules(frame), _MOST_MODULES):
        held = [*itertools.islice(_parameters(module), _MOST)]
        gradients = [item.grad for item in held if item.is_leaf and item.grad is not None]
        for of, tensors in (("parameters", held), ("gradients", gradients)):
            words = _words(tensors)
            if words is not None:
                found.append({"name": f"{of} of {name}", "value": words})
    return found


def _modules(frame: FrameType) -> Iterator[tuple[str, object]]:
    """Variables of the frame that are modules, `self` among them, and attributes of `self` that its code names."""
    used = set(frame.f_code.co_names) if frame.f_code.co_name == "<module>" else None
    own = attributes_of(frame.f_locals.get("self"))
    inner = [] if "_modules" in own else [(f"self.{name}", own[name]) for name in frame.f_code.co_names if name in own]
    seen: set[int] = set()
    for name, value in [*itertools.islice(frame.f_locals.items(), _LOOKED_AT), *inner]:
        held = attributes_of(value) if used is None or name in used else {}
        if type(held.get("_modules")) in TABLES and type(held.get("_parameters")) in TABLES and id(value) not in seen:
            seen.add(id(value))
            yield name, value


def _parameters(module: object) -> Iterator[torch.Tensor]:
    parameter = getattr(getattr(sys.modules.get("torch"), "nn", None), "Parameter", None)
    waiting: list[object] = [module]
    for _ in range(_MOST_LAYERS):
        if not waiting:
            return
        held: dict[str, Any] = attributes_of(waiting.pop(0))
        for kind in ("_parameters", "_modules"):
            table: dict[str, object] = held.get(kind, {})
            if type(table) not in TABLES:
                continue
            if kind == "_modules":
                waiting += [*table.values()]
            else:
                yield from (item for item in table.values() if type(item) is parameter)


def _words(tensors: list[torch.Tensor]) -> str | None:
    kinds, whole = [], bool(tensors)
    for tensor in tensors:
        numbers = first_numbers(tensor)
        if numbers is None:
            whole = False
            continue
        whole = whole and len(numbers) == tensor.numel()
        if math.isfinite(sum(numbers)):  # one addition each: thousands are looked at
            continue
        if any(math.isnan(number) for number in numbers):
            kinds.append("nan")
        elif any(math.isinf(number) for number in numbers):
            kinds.append("inf")
    if not kinds:
        return f"{len(tensors)}, finite" if whole else None
    return f"{len(kinds)} of {len(tensors)} with {'nan' if 'nan' in kinds else 'inf'}"
