"""What a function of torch's had before it when it refused: the parts that it compared, by their lengths and kinds."""

from __future__ import annotations

import math
import sys
from types import FrameType
from typing import Any

from pytracer.record.config import records_values
from pytracer.record.torch.near_names import TABLES
from pytracer.record.torch.object_words import kind_words
from pytracer.record.torch.tensor_numbers import numbers_of

_MOST_GROUPS = 8
_MOST_LEVELS = 6
_NEAR_COPY = 3  # frames below copy.deepcopy() that may be torch's
_PATH_CHARACTERS = 60
_SEVERAL = (list, tuple)
_HELD_IN = (dict, list, tuple, *TABLES)


def compared(frames: list[FrameType]) -> list[dict[str, str]]:
    """Of the innermost frame, as variables; nothing of a function that is not known here. `frames`: outermost first."""
    if not frames:
        return []
    code = frames[-1].f_code
    if code.co_name == "load_state_dict" and code.co_filename.endswith("torch/optim/optimizer.py"):
        return _groups(frames[-1])
    if code.co_filename.endswith("torch/utils/data/_utils/collate.py"):
        return _samples([item for item in frames if item.f_code.co_filename == code.co_filename])
    if code.co_name == "binary_cross_entropy" and code.co_filename.endswith("torch/nn/functional.py"):
        return _ranges(frames[-1])
    return _copied(frames)


def _ranges(frame: FrameType) -> list[dict[str, str]]:
    """Of what a loss takes as probabilities."""
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    held = [(name, frame.f_locals.get(name)) for name in ("input", "target")]
    found = []
    for name, value in held if records_values() else ():
        numbers = numbers_of(value) if type(value) is tensor else None
        if numbers and all(math.isfinite(number) for number in numbers):
            outside = sum(not 0 <= number <= 1 for number in numbers)
            words = f"{min(numbers):.4g}..{max(numbers):.4g}, {outside} of {len(numbers)} outside of 0..1"
            words += ", whole" if all(number == int(number) for number in numbers) else ""
            found.append({"name": f"range of {name}", "value": words})
    return found


def _copied(frames: list[FrameType]) -> list[dict[str, str]]:
    """Of copy.deepcopy(), the way to the attribute of the innermost object, by keys that are texts, and its class.

    Without an object, such as of a dict of tensors, to the last key.
    """
    own = [item for item in frames if item.f_code.co_filename.endswith("/copy.py")]
    if not own or frames.index(own[-1]) < len(frames) - _NEAR_COPY:
        return []
    path, owner, begins, whole = list[str](), "", False, True
    for frame in own:
        name, value = frame.f_code.co_name, frame.f_locals.get("x")
        if name == "_reconstruct" and type(value) not in _HELD_IN:
            owner, begins = type(value).__name__, True
        elif name == "_deepcopy_dict":
            key = frame.f_locals.get("key")
            whole = type(key) is str
            if isinstance(key, str) and whole and (begins or not owner or path[-1:] == ["_modules"]):
                path.append(key)
            begins = False
    if not path or not (owner or whole):
        return []
    told = [("copied", ".".join(path)[-_PATH_CHARACTERS:]), ("copied of", owner)]
    return [{"name": name, "value": value} for name, value in told if value]


def _groups(frame: FrameType) -> list[dict[str, str]]:
    """How many parameters each group of the optimizer has, and each of the saved state."""
    found = []
    for name in ("groups", "saved_groups"):
        groups = frame.f_locals.get(name)
        for n, group in enumerate(groups[:_MOST_GROUPS] if type(groups) is list else ()):
            held = group.get("params") if type(group) is dict else None
            if type(held) is list:
                found.append({"name": f"{name}[{n}]['params']", "value": f"list of {len(held)}"})
    return found


def _samples(frames: list[FrameType]) -> list[dict[str, str]]:
    """Two parts of samples that could not be joined, and where they are in a sample.

    `place` is `[1]` of what `return image, target` gives, `['mask']` of a dict.
    """
    batches = [item.f_locals["batch"] for item in frames if _is_batch(item.f_locals.get("batch"))]
    if not batches:
        return []
    first = batches[-1][0]
    other = next((n for n, item in enumerate(batches[-1]) if _lacks_key(item, first)), None)
    if other is None:
        other = next((n for n, item in enumerate(batches[-1]) if kind_words(item) != kind_words(first)), None)
    found = [(f"batch[{n}]", kind_words(batches[-1][n])) for n in ((0,) if other is None else (0, other))]
    place = _place(batches[0][0], [item[0] for item in batches[1:]])
    return [{"name": name, "value": value} for name, value in [*found, ("place", place)] if value]


def _lacks_key(item: object, first: object) -> bool:
    """Whether a dict has not all keys of the first sample's, of those that are texts."""
    if type(item) not in TABLES or type(first) not in TABLES:
        return False
    return any(type(key) is str and key not in item for key in first)  # type: ignore[attr-defined,operator]


def _is_batch(value: object) -> bool:
    return type(value) in _SEVERAL and len(value) > 0  # type: ignore[arg-type]


def _place(sample: object, parts: list[Any]) -> str:
    """From a sample down to one of its parts, by identity.

    Nothing below a key that is no text or number: its repr() is the program's own code.
    """
    words = ""
    for part in parts[:_MOST_LEVELS]:
        items = sample.items() if type(sample) is dict else enumerate(sample) if type(sample) in _SEVERAL else ()  # type: ignore[var-annotated,arg-type]
        key = next((name for name, item in items if item is part), None)
        if part is not sample and type(key) not in (str, int):
            return ""
        words += f"[{key!r}]" if part is not sample else ""
        sample = part
    return words
