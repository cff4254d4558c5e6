"""Where a text was that is no number: `row['year']`, of the error of float() and int(), whose message has the text.

And the text file that the line reads, with the line of it that a reader of csv has come to. No content is recorded.
Only containers of exactly Python's types are looked at: asking those runs no code of the program.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from pytracer.record.config import records_values
from pytracer.record.torch.frame_variables import programs_frames
from pytracer.record.torch.near_names import TABLES, attributes_of
from pytracer.record.torch.opened_file import held_file

_REFUSED = re.compile(
    r"(?:could not convert string to float: |invalid literal for int\(\) with base \d+: )(?:np\.str_\()?(.*?)\)?$"
)
_OF_TEXTS = re.compile(
    r"could not convert string to |invalid literal for int\(\)|(?:too many|not enough) values to unpack"
)
_FRAMES, _LEVELS, _LOOKED_AT, _MOST = 3, 2, 100_000, 4
_KEY_CHARACTERS = 40


def refused_text(error: BaseException, trace: TracebackType | None) -> list[dict[str, str]]:
    """As the variables `place of the refused text`, `text file` and `line of the text file`."""
    message = error.args[0] if error.args and type(error.args[0]) is str else ""
    if type(error) is not ValueError or _OF_TEXTS.match(message) is None:
        return []
    frames = programs_frames(trace)[:_FRAMES]
    if not frames or not records_values():
        return []
    places = _places(message, frames)
    facts = {"place of the refused text": ", ".join(places)} if places else {}
    path, line = held_file(frames[0]), _line_of_reader(frames[0])
    facts |= {"text file": path} if path is not None else {}
    facts |= {"line of the text file": str(line)} if line is not None else {}
    return [{"name": name, "value": value} for name, value in facts.items()]


def _places(message: str, frames: list[FrameType]) -> list[str]:
    """Of the innermost frame that holds the text in a container; where several parts have it, the one of the key."""
    found = _REFUSED.match(message)
    try:
        text = ast.literal_eval(found[1]) if found is not None else None
    except (SyntaxError, ValueError):
        return []
    if type(text) is not str:
        return []
    keys = [value for value in frames[0].f_locals.values() if type(value) in (str, int)]
    for frame in frames:
        held = _held(frame)
        left = itertools.count()
        places = [*itertools.islice(_inside(held, text, _LEVELS, left), _MOST)]
        named = [name for name, key in places if any(type(key) is type(item) and key == item for item in keys)]
        if places:
            return named if len(named) == 1 else [name for name, _ in places]
    return [name for name, value in frames[0].f_locals.items() if type(value) is str and value == text][:1]


def _held(frame: FrameType) -> list[tuple[str, object]]:
    """Its variables, of a module those that its own code names, and attributes of `self` that the code names."""
    own, names = attributes_of(frame.f_locals.get("self")), frame.f_code.co_names
    used = set(names) if frame.f_code.co_name == "<module>" else None
    held = [(name, value) for name, value in frame.f_locals.items() if used is None or name in used]
    read = [(f"self.{name}", own[name]) for name in names if name in own]
    return [*(item for item in held if item[0].isidentifier() and not item[0].startswith("__")), *read]


def _inside(held: list[tuple[str, Any]], text: str, levels: int, left: Iterator[int]) -> Iterator[tuple[str, object]]:
    """Name and key of each part of a dict, list or tuple that is the text."""
    for name, value in held:
        if type(value) in TABLES:
            items: Iterator[tuple[object, Any]] = iter(value.items())
        elif type(value) in (list, tuple):
            items = enumerate(value)
        else:
            continue
        deeper: list[tuple[str, Any]] = []
        for key, item in items:
            if next(left) > _LOOKED_AT:
                return
            if type(item) is str and item == text and _is_plain(key):
                yield f"{name}[{key!r}]", key
            elif levels > 1 and type(item) in (*TABLES, list, tuple) and _is_plain(key):
                deeper.append((f"{name}[{key!r}]", item))
        yield from _inside(deeper, text, levels - 1, left)


def _is_plain(key: object) -> bool:
    return type(key) is int or (type(key) is str and len(key) <= _KEY_CHARACTERS and key.isprintable())


def _line_of_reader(frame: FrameType) -> int | None:
    """Of the only reader of csv that a variable is."""
    csv = sys.modules.get("csv")
    kinds = (getattr(sys.modules.get("_csv"), "Reader", None), getattr(csv, "DictReader", None))
    readers = [item for item in frame.f_locals.values() if csv is not None and type(item) in kinds]
    line = getattr(readers[0], "line_num", None) if len(readers) == 1 else None
    return line if type(line) is int else None
