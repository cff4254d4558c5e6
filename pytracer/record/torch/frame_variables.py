"""What the variables of a frame were when an exception left it: types, shapes, lengths and numbers; never contents.

A text that reads as a number is one. Numbers count as values (`--no-values`). Only objects of exactly these types are
looked at: asking those runs no code of the program.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import math
import sys
from collections.abc import Iterator
from types import FrameType, FunctionType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from pytracer._library_files import is_library_file
from pytracer.record.config import records_values
from pytracer.record.torch.compared import compared
from pytracer.record.torch.dtensor_words import sharded_words
from pytracer.record.torch.finite_weights import finite_weights
from pytracer.record.torch.near_names import TABLES, attributes_of
from pytracer.record.torch.number_texts import number_texts, refused_texts
from pytracer.record.torch.object_words import iterator_words, loader_words, unequal_items
from pytracer.record.torch.tensor_numbers import Number, numbers_of, numbers_of_array

if TYPE_CHECKING:
    import torch

_MOST = 32
_MOST_OF_SELF = 8
_LOOKED_AT = 256
_NAME_CHARACTERS = 60
_DIMENSIONS = 8
_LARGEST = 1 << 63
_CONTAINERS = (list, tuple, dict, set, str, bytes, collections.deque, *TABLES)
_LAYER_CHARACTERS = 120
_MOST_INSIDE = 12
_MOST_UNEQUAL = 4
_DISTRIBUTION = ("loc", "scale", "probs", "logits", "concentration", "rate", "scale_tril")  # its parameters
_MOST_OUTER = 6  # callers
_MOST_OF_OUTER = 16


def variables_of(trace: TracebackType | None) -> list[dict[str, str]]:
    """Those of the innermost frame of the program, in the order in which they were made: `name` and `value`."""
    own = of_program(trace)
    with without_modes():
        if own is None:
            return []
        return [*_of_frame(own.tb_frame), *_of_layer(own), *finite_weights(own.tb_frame)]


def outer_variables(trace: TracebackType | None) -> list[dict[str, object]]:
    """Those of the program's frames around it, and of a function of torch's that compares what it was given.

    `frame`: its place in the stack, innermost first.
    """
    chain, own = [], of_program(trace)
    while trace is not None:
        chain.append(trace)
        trace = trace.tb_next
    outer = [item for item in chain if item is not own and not is_library_file(item.tb_frame.f_code.co_filename)]
    with without_modes():
        found = {
            id(item): [*_of_frame(item.tb_frame)[:_MOST_OF_OUTER], *finite_weights(item.tb_frame)]
            for item in outer[-_MOST_OUTER:]
        }
        found |= {id(item): facts for item in chain[-1:] if (facts := _of_library(chain, own))}
    places = {id(item): len(chain) - 1 - n for n, item in enumerate(chain)}
    return [{"frame": places[key], "variables": held} for key, held in found.items() if held]


def _of_library(chain: list[TracebackType], own: TracebackType | None) -> list[dict[str, str]]:
    """Of the function that raised it."""
    last = chain[-1]
    return compared([item.tb_frame for item in chain]) or (refused_texts(last.tb_frame) if last is not own else [])


def without_modes() -> contextlib.AbstractContextManager[object]:
    """A program's own TorchFunctionMode would see the reading of shapes."""
    torch = sys.modules.get("torch._C")
    disabled = getattr(torch, "DisableTorchFunction", None)
    return contextlib.nullcontext() if disabled is None else disabled()


def failing_columns(trace: TracebackType | None) -> list[int]:
    """Line, column, last line and its end, in bytes, of the expression that failed there; since CPython 3.11."""
    own = of_program(trace)
    if own is None or own.tb_lasti < 0 or not hasattr(own.tb_frame.f_code, "co_positions"):
        return []
    places = own.tb_frame.f_code.co_positions()
    line, last, column, end = next(itertools.islice(places, own.tb_lasti // 2, None), (None,) * 4)
    if line is None or last is None or column is None or end is None:
        return []
    return [line, column, last, end]


def of_program(trace: TracebackType | None) -> TracebackType | None:
    """The innermost part of the traceback that is not a library's."""
    found = None
    while trace is not None:
        if not is_library_file(trace.tb_frame.f_code.co_filename):
            found = trace
        trace = trace.tb_next
    return found


def programs_frames(trace: TracebackType | None) -> list[FrameType]:
    """Innermost first."""
    found = []
    while trace is not None:
        if not is_library_file(trace.tb_frame.f_code.co_filename):
            found.append(trace.tb_frame)
        trace = trace.tb_next
    return found[: -_MOST_OUTER - 1 : -1]


def _of_frame(frame: FrameType) -> list[dict[str, str]]:
    code = frame.f_code
    used = set(code.co_names) if code.co_name == "<module>" else None  # of a module only what its own code uses
    found = []
    for name, value in itertools.islice(frame.f_locals.items(), _LOOKED_AT):
        if name.startswith("__") or (used is not None and name not in used):
            continue
        words = words_of(value)
        if words is not None:
            found.append({"name": name[:_NAME_CHARACTERS], "value": words})
    inside = itertools.islice(_inside(frame), _MOST_INSIDE)
    unequal = itertools.islice(_unequal(frame, used), _MOST_UNEQUAL)
    held = {name: value for name, value in frame.f_locals.items() if used is None or name in used}
    return [*found[: _MOST - _MOST_OF_SELF], *_of_self(frame)[:_MOST_OF_SELF], *inside, *unequal, *number_texts(held)]


def _unequal(frame: FrameType, used: set[str] | None) -> Iterator[dict[str, str]]:
    """Lists whose items are of different kinds or sizes."""
    for name, value in itertools.islice(frame.f_locals.items(), _LOOKED_AT):
        if not name.startswith("__") and (used is None or name in used):
            yield from unequal_items(name[:_NAME_CHARACTERS], value)


def _inside(frame: FrameType) -> Iterator[dict[str, str]]:
    """What the code itself names inside of a variable: `batch['x']`, `args.rate`; a tensor that is first in a list."""
    keys = [item for item in frame.f_code.co_consts if type(item) is str]
    used = set(frame.f_code.co_names)
    for name, value in itertools.islice(frame.f_locals.items(), _LOOKED_AT):
        if name.startswith("__") or name == "self" or (frame.f_code.co_name == "<module>" and name not in used):
            continue
        for place, item in _items(value, keys, frame.f_code.co_names):
            words = words_of(item)
            if words is not None:
                yield {"name": f"{name}{place}"[:_NAME_CHARACTERS], "value": words}


def _items(value: object, keys: list[str], names: tuple[str, ...]) -> list[tuple[str, object]]:
    kind = type(value)
    if kind in TABLES:
        table: dict[str, object] = value  # type: ignore[assignment]
        return [(f"[{key!r}]", table[key]) for key in keys if key in table]
    if kind in (list, tuple):
        first = value[0] if value else None  # type: ignore[index]
        return [("[0]", first)] if (_array_words(type(first), first)) is not None else []
    if issubclass(kind, (type, ModuleType, FunctionType)):
        return []
    held = attributes_of(value)
    names = (*names, *_DISTRIBUTION) if kind.__module__.startswith("torch.distributions.") else names
    return [(f".{name}", held[name]) for name in dict.fromkeys(names) if name in held]


def _of_self(frame: FrameType) -> list[dict[str, str]]:
    """Attributes that the method's code names, parameters and buffers of a module, and its layers' weights."""
    own = attributes_of(frame.f_locals.get("self"))
    held = [own, *(own[name] for name in ("_parameters", "_buffers") if type(own.get(name)) in TABLES)]
    layers: dict[str, Any] = own["_modules"] if type(own.get("_modules")) in TABLES else {}
    found = []
    for name in frame.f_code.co_names:
        words = next((words for items in held if name in items and (words := words_of(items[name])) is not None), None)
        if words is not None:
            found.append({"name": f"self.{name}"[:_NAME_CHARACTERS], "value": words})
        value = own.get(name)
        if words is None and type(value).__module__.startswith("torch.distributions."):
            inner = [(f"self.{name}{place}", words_of(item)) for place, item in _items(value, [], ())]
            found += [{"name": place, "value": held_words} for place, held_words in inner if held_words is not None]
        weight = getattr(layers.get(name), "__dict__", {}).get("_parameters", {}).get("weight")
        if weight is not None and (words := words_of(weight)) is not None:
            found.append({"name": f"self.{name}.weight"[:_NAME_CHARACTERS], "value": words})
    return found


def _of_layer(own: TracebackType) -> list[dict[str, str]]:
    """The innermost of torch's own layers that the program's line called, with what it was given.

    `self.fc.0` was `Linear(in_features=4, out_features=2, bias=True) float32`, `input of self.fc.0` `[5, 6] float32`.
    """
    layer, last, chain = None, None, []
    trace = own.tb_next
    while trace is not None:
        value = trace.tb_frame.f_locals.get("self")
        if trace.tb_frame.f_code.co_name == "forward" and "_modules" in attributes_of(value):
            layer, last = value, trace.tb_frame
            chain.append(value)
        trace = trace.tb_next
    if layer is None or last is None or not type(layer).__module__.startswith("torch.nn.modules."):
        return []
    name = _path(own.tb_frame, chain)
    if name is None:
        return []
    weight = attributes_of(layer).get("_parameters", {}).get("weight")
    dtype = f" {str(weight.dtype).removeprefix('torch.')}" if weight is not None else ""
    made = f"{type(layer).__name__}({layer.extra_repr()}){dtype}"
    found = [{"name": name[:_NAME_CHARACTERS], "value": made[:_LAYER_CHARACTERS]}]
    given = last.f_locals.get("input", last.f_locals.get("x"))
    words = words_of(given)
    if words is not None:
        found.append({"name": f"input of {name}"[:_NAME_CHARACTERS], "value": words})
    return found


def _path(frame: FrameType, chain: list[object]) -> str | None:
    """`self.net.0` or `model.0`: from a variable of the frame down to the last of the modules."""
    layers = attributes_of(frame.f_locals.get("self")).get("_modules", {})
    module = ((name, frame.f_globals[name]) for name in frame.f_code.co_names if name in frame.f_globals)
    names = [*((f"self.{name}", item) for name, item in layers.items()), *frame.f_locals.items(), *module]
    path = next((name for name, item in names if item is chain[0] and name != "self"), None)
    for outer, inner in itertools.pairwise(chain):
        layers = attributes_of(outer).get("_modules", {})
        name = next((name for name, item in layers.items() if item is inner), None)
        if path is None or name is None:
            return None
        path = f"{path}.{name}"
    return path


def words_of(value: object) -> str | None:
    """`[2, 3] float32`, `DTensor [4, 3] float32, Shard(0)`, `list of 4`, `None`, `7`; None of any other object."""
    kind = type(value)
    if value is None:
        return "None"
    if kind in _CONTAINERS:
        return f"{kind.__name__} of {len(value)}"  # type: ignore[arg-type]
    if kind is int or kind is float or kind is bool:
        small = abs(value) < _LARGEST or (kind is float and not math.isfinite(value))  # type: ignore[arg-type]
        return repr(value) if records_values() and small else None
    return _array_words(kind, value) or sharded_words(value) or iterator_words(value) or loader_words(value)


def _array_words(kind: type, value: object) -> str | None:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    parameter = getattr(getattr(torch, "nn", None), "Parameter", None)
    if torch is not None and (kind is getattr(torch, "Tensor", None) or kind is parameter):
        where = "" if str(value.device) == "cpu" else f" on {value.device}"  # type: ignore[attr-defined]
        shape = f"{_shape(value)} {str(value.dtype).removeprefix('torch.')}"  # type: ignore[attr-defined]
        return f"{shape}{where or _contents(value)}"
    if numpy is not None and kind is getattr(numpy, "ndarray", None):
        inside = _not_finite(numbers_of_array(value)) if records_values() else ""
        return f"{_shape(value)} {value.dtype} array"[:_NAME_CHARACTERS] + inside  # type: ignore[attr-defined]
    return None


def _contents(tensor: torch.Tensor) -> str:
    """Its number without dimensions, as a loss has; of others `, 0..9`, `, 3 true` of a mask, `, with nan`."""
    numbers = numbers_of(tensor) if records_values() else None
    if numbers is None:
        return ""
    if not tensor.shape:
        return f" {numbers[0]:.6g}"
    if isinstance(numbers[0], bool):
        return f", {sum(numbers)} true"
    if not isinstance(numbers[0], float):
        return f", {min(numbers)}..{max(numbers)}"
    return _not_finite(numbers)


def _not_finite(numbers: tuple[Number, ...] | None) -> str:
    if any(math.isnan(number) for number in numbers or ()):
        return ", with nan"
    return ", with inf" if any(math.isinf(number) for number in numbers or ()) else ""


def _shape(value: object) -> str:
    sizes = [str(int(size)) for size in value.shape[:_DIMENSIONS]]  # type: ignore[attr-defined]
    return f"[{', '.join(sizes)}]"
