"""Texts that read as numbers, as a configuration has them: `1e-4` without a dot is a text in YAML, as all of argv is.

Only these are recorded with what they hold, and only where numbers are; never a long row of digits, which may be a key.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from types import FrameType, FunctionType, ModuleType
from typing import Any

from pytracer.blackbox.redaction import redact_text
from pytracer.record.config import records_values
from pytracer.record.torch.near_names import TABLES, attributes_of

_NUMBER = re.compile(r"[+-]?(?:\d{1,5}|\d{0,4}\.\d{1,6}|\d{1,4}\.)(?:[eE][+-]?\d{1,3})?")
_LOOKED_AT = 64
_LEVELS = 2
_MOST = 8
_NAME_CHARACTERS = 60


def number_texts(names: dict[str, Any]) -> list[dict[str, str]]:
    """`text of config['lr']`, as a variable: of those that are texts, and of tables and objects with such, two deep."""
    if not records_values():
        return []
    found = ((f"text of {name}", text) for name, text in _texts(names, _LEVELS) if len(name) <= _NAME_CHARACTERS)
    return [{"name": name, "value": text} for name, text in itertools.islice(found, _MOST)]


def refused_texts(frame: FrameType) -> list[dict[str, str]]:
    """Of the arguments of a function."""
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    held = frame.f_locals
    return number_texts({name: held[name] for name in names if type(held.get(name)) is str})


def _texts(held: dict[str, Any], levels: int) -> Iterator[tuple[str, str]]:
    for name, value in itertools.islice(held.items(), _LOOKED_AT):
        if type(name) is not str or name.startswith("__"):
            continue
        if type(value) is str:
            text = value.strip() if len(value) <= _NAME_CHARACTERS else ""
            if _NUMBER.fullmatch(text) is not None and not redact_text(f"{name}={text}".encode())[1]:
                yield name, text
            continue
        if levels == 0:
            continue
        if type(value) in TABLES:
            yield from ((f"{name}[{key!r}{rest}", text) for key, rest, text in _inside(value, levels))
        elif not issubclass(type(value), (type, ModuleType, FunctionType)):
            own = attributes_of(value)
            yield from ((f"{name}.{inner}", text) for inner, text in _texts(own, levels - 1)) if own else ()


def _inside(table: dict[str, Any], levels: int) -> Iterator[tuple[str, str, str]]:
    """Key, what follows it in the name, and the text."""
    for key, value in itertools.islice(table.items(), _LOOKED_AT):
        if type(key) is str and key.isidentifier():
            for name, text in _texts({key: value}, levels - 1):
                yield key, f"]{name.removeprefix(key)}", text
