"""What the variables of a frame were when an exception left it: types, shapes, lengths and numbers; never contents.

Numbers count as values (`--no-values`). Only objects of exactly these types are looked at: asking those runs no code of
the program.
"""

from __future__ import annotations

import itertools
import re
import sys
from types import FrameType, TracebackType

from pytracer.record.config import records_values

_MOST = 32
_MOST_OF_SELF = 8
_LOOKED_AT = 256
_NAME_CHARACTERS = 60
_DIMENSIONS = 8
_LARGEST = 1 << 63
_LIBRARY = re.compile(r"/(?:site-packages|dist-packages|lib/python3\.\d+|pytracer/record)/|^<frozen")
_CONTAINERS = (list, tuple, dict, set, str, bytes)


def variables_of(trace: TracebackType | None) -> list[dict[str, str]]:
    """Those of the innermost frame of the program, in the order in which they were made: `name` and `value`."""
    frame = None
    while trace is not None:
        if not _LIBRARY.search(trace.tb_frame.f_code.co_filename):
            frame = trace.tb_frame
        trace = trace.tb_next
    return _of_frame(frame) if frame is not None else []


def _of_frame(frame: FrameType) -> list[dict[str, str]]:
    code = frame.f_code
    used = set(code.co_names) if code.co_name == "<module>" else None  # of a module only what its own code uses
    found = []
    for name, value in itertools.islice(frame.f_locals.items(), _LOOKED_AT):
        if name.startswith("__") or (used is not None and name not in used):
            continue
        words = _words(value)
        if words is not None:
            found.append({"name": name[:_NAME_CHARACTERS], "value": words})
    return [*found[: _MOST - _MOST_OF_SELF], *_of_self(frame)[:_MOST_OF_SELF]]


def _of_self(frame: FrameType) -> list[dict[str, str]]:
    """Attributes that the method's code names, parameters and buffers of a module, and its layers' weights."""
    value = frame.f_locals.get("self")
    try:
        own = object.__getattribute__(value, "__dict__")  # no __getattr__ of the program's
    except AttributeError:
        return []
    held = [own, *(own[name] for name in ("_parameters", "_buffers") if type(own.get(name)) is dict)]
    layers = own.get("_modules") if type(own.get("_modules")) is dict else {}
    found = []
    for name in frame.f_code.co_names:
        words = next((words for items in held if name in items and (words := _words(items[name])) is not None), None)
        if words is not None:
            found.append({"name": f"self.{name}"[:_NAME_CHARACTERS], "value": words})
        weight = getattr(layers.get(name), "__dict__", {}).get("_parameters", {}).get("weight")
        if weight is not None and (words := _words(weight)) is not None:
            found.append({"name": f"self.{name}.weight"[:_NAME_CHARACTERS], "value": words})
    return found


def _words(value: object) -> str | None:
    kind = type(value)
    if value is None:
        return "None"
    if kind in _CONTAINERS:
        return f"{kind.__name__} of {len(value)}"  # type: ignore[arg-type]
    if kind is int or kind is float or kind is bool:
        return repr(value) if records_values() and abs(value) < _LARGEST else None  # type: ignore[arg-type]
    return _array_words(kind, value)


def _array_words(kind: type, value: object) -> str | None:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    parameter = getattr(getattr(torch, "nn", None), "Parameter", None)
    if torch is not None and (kind is getattr(torch, "Tensor", None) or kind is parameter):
        where = "" if str(value.device) == "cpu" else f" on {value.device}"  # type: ignore[attr-defined]
        shape = f"{_shape(value)} {str(value.dtype).removeprefix('torch.')}"  # type: ignore[attr-defined]
        return f"{shape}{where or _number(value)}"
    if numpy is not None and kind is getattr(numpy, "ndarray", None):
        return f"{_shape(value)} {value.dtype} array"[:_NAME_CHARACTERS]  # type: ignore[attr-defined]
    return None


def _number(value: object) -> str:
    """Of a tensor on the CPU without dimensions: a loss that is no number is seen."""
    if value.dim() != 0 or not records_values():  # type: ignore[attr-defined]
        return ""
    try:
        return f" {value.item():.6g}"  # type: ignore[attr-defined]
    except Exception:  # it has no memory, or no number
        return ""


def _shape(value: object) -> str:
    sizes = [str(int(size)) for size in value.shape[:_DIMENSIONS]]  # type: ignore[attr-defined]
    return f"[{', '.join(sizes)}]"
