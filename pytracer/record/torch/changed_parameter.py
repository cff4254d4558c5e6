"""Of "modified by an inplace operation": the parameter with that shape and version, and its optimizer.

Attributes of tensors of exactly torch's types: no operator of torch's runs.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from pytracer.record.torch.frame_variables import programs_frames, without_modes
from pytracer.record.torch.near_names import TABLES, attributes_of

_MESSAGE = re.compile(
    r"modified by an inplace operation: \[[\w.]+ \[([\d, ]*)\]\](?:, which is output 0 of (\w+),)? is at version (\d+)"
)
_TRANSPOSED = re.compile(r"(?:T|AsStrided|Transpose|Permute)(?:Backward0)?$")  # as a Linear saves its weight
_LOOKED_AT = 256
_MOST_PARAMETERS = 4096
_LEVELS = 12
_NAME_CHARACTERS = 60
_NAMED = 4


def changed_parameter(error: BaseException, trace: TracebackType | None) -> list[dict[str, str]]:
    """As variables `changed parameter` and `its optimizer`; `changed parameters` where a few have shape and version."""
    text = error.args[0] if error.args and type(error.args[0]) is str else ""
    found = _MESSAGE.search(text)
    torch = sys.modules.get("torch")
    if found is None or torch is None or (found[2] is not None and _TRANSPOSED.match(found[2]) is None):
        return []
    sizes, version = [int(size) for size in found[1].split(",") if size.strip()], int(found[3])
    sizes = sizes[::-1] if found[2] is not None else sizes
    kinds = (torch.Tensor, torch.nn.Parameter)
    with without_modes():
        for frame in programs_frames(trace):
            held = [
                (name, item)
                for name, item, linear in itertools.islice(_parameters(frame), _MOST_PARAMETERS)
                if type(item) in kinds and item._version == version and list(item.shape) == sizes
                if found[2] is not None or not (linear and len(sizes) > 1)
            ]
            if held:
                return _told(frame, held) if len({id(item) for _, item in held}) == 1 else _several(held)
    return []


def _told(frame: FrameType, held: list[tuple[str, Any]]) -> list[dict[str, str]]:
    name, item = held[0]
    shape = f"[{', '.join(str(int(size)) for size in item.shape)}]"
    by = [own for own, value in _values(frame) if _has(value, item)]
    told = [{"name": "changed parameter", "value": f"{name[:_NAME_CHARACTERS]} {shape}"}]
    return [*told, *({"name": "its optimizer", "value": own[:_NAME_CHARACTERS]} for own in by[:1])]


def _several(held: list[tuple[str, Any]]) -> list[dict[str, str]]:
    """`self.q1.4.weight,self.q2.4.weight [1, 64]`: it is one of them."""
    names = list({id(item): name for name, item in held[::-1]}.values())[::-1]
    if len(names) > _NAMED or any(len(name) > _NAME_CHARACTERS or " " in name for name in names):
        return []
    shape = f"[{', '.join(str(int(size)) for size in held[0][1].shape)}]"
    return [{"name": "changed parameters", "value": f"{','.join(names)} {shape}"}]


def _has(value: object, item: object) -> bool:
    """Whether it is an optimizer with that parameter."""
    groups = attributes_of(value).get("param_groups")
    for group in groups[:_LOOKED_AT] if type(groups) is list else ():
        held = group.get("params") if type(group) is dict else None
        if type(held) is list and any(part is item for part in held):
            return True
    return False


def _values(frame: FrameType) -> Iterator[tuple[str, object]]:
    """Variables, and attributes of `self`."""
    for name, value in itertools.islice(frame.f_locals.items(), _LOOKED_AT):
        if name != "self":
            yield name, value
            continue
        own = attributes_of(value)
        modules = own.get("_modules")
        held = {**own, **(modules if type(modules) in TABLES and modules is not None else {})}
        yield from ((f"self.{inner}", item) for inner, item in itertools.islice(held.items(), _LOOKED_AT))


def named_parameters(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """Those of the modules that its variables and the attributes of `self` hold: `self.net.fc.weight`."""
    yield from ((name, item) for name, item, _ in _parameters(frame))


def _parameters(frame: FrameType) -> Iterator[tuple[str, Any, bool]]:
    """With their names; whether it is of a Linear, which saves its weight transposed alone."""
    for name, value in _values(frame):
        yield from _of_module(name, value, 0)


def _of_module(name: str, value: object, level: int) -> Iterator[tuple[str, Any, bool]]:
    own = attributes_of(value)
    held, layers = own.get("_parameters"), own.get("_modules")
    if type(held) not in TABLES or held is None:
        return
    torch = sys.modules.get("torch")
    linear = torch is not None and type(value) is torch.nn.Linear
    yield from ((f"{name}.{inner}", item, linear) for inner, item in held.items())
    for inner, layer in layers.items() if type(layers) in TABLES and layers is not None and level < _LEVELS else ():
        yield from _of_module(f"{name}.{inner}", layer, level + 1)
