"""Text that attacks a terminal, and data types filled with it by walking them, so that new fields are covered."""

from __future__ import annotations

import dataclasses
import random
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

import msgspec

MARK = "EVIL"
"""What begins a line when a line break of the attacker's got through."""

TEXT = (
    f"a\n{MARK} rm -rf /\r{MARK}\r\n{MARK}\v{MARK}\f{MARK}\x85{MARK}\u2028{MARK}\u2029{MARK}\x1c{MARK}"
    "\t\0\x07\x08\x7f\x1b[31m\x1b[2J\x1b]0;title\x07\x1b]8;;http://x.example/\x1b\\link\x1b]8;;\x1b\\\x9b31m\x90q\x9c"
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"  # reorder
    "\u200b\u200c\u200d\u2060\ufeff\u00ad\u180e\u3164\u2800\ufe0f\U000e0041"  # invisible
    "\u0301\u0301\u0301\u0301\u0301\u0301\u0301\u0301"  # grow upwards
    "\ud800 \udc80\ue000\U000f0000\u0378\ufffe"  # lone surrogates, private use, unassigned
    "[red]markup[/red][link=http://x.example]:skull:"
    "\u6f22\u5b57\uff21\U0001f480 " + f"{MARK} " * 60
)  # fmt: skip
"""Every kind of attack, in one string; long enough that it is wrapped."""

_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\ufe0f\uffa0")
_VOCABULARIES = frozenset(
    (
        *("kind", "role", "status_kind", "state", "reported_by", "found", "boot_id", "arch", "step_source"),
        *("how", "access", "mechanism", "permissions", "schema", "origin", "directory", "path", "threads_how", "side"),
    )
)  # fmt: skip
_NUMBERS = frozenset(("addr", "low", "high", "start", "end", "value", "bytes", "base", "pc"))


def assert_harmless(text: str, *, least_indent: int = 1, styled: bool = False) -> None:
    """No terminal controls, nothing invisible or reordered, and no line that begins with the attacker's text."""
    if styled:
        text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    for char in set(text) - {"\n"}:
        category = unicodedata.category(char)
        assert category[0] != "C" and category not in ("Zl", "Zp"), f"{char!a} was printed"
        assert char not in _INVISIBLE, f"{char!a} was printed"
    for line in text.split("\n"):
        stripped = line.lstrip()
        assert not stripped.startswith(MARK) or len(line) - len(stripped) >= least_indent, line
        assert not unicodedata.combining(line[:1] or " "), line


def hostile_copy(value: Any, name: str = "", *, text: str = TEXT) -> Any:
    """Decoded data with the attack appended to every string that a job chooses; our enumerations are unchanged."""
    if isinstance(value, str):
        return value if name in _VOCABULARIES else value + text
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = {item.name: getattr(value, item.name) for item in dataclasses.fields(value) if item.init}
        return dataclasses.replace(value, **{k: hostile_copy(v, k, text=text) for k, v in found.items()})
    if isinstance(value, Mapping):
        return {k: hostile_copy(v, str(k), text=text) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(hostile_copy(item, name, text=text) for item in value))
    if isinstance(value, (list, tuple, set, frozenset)):
        return type(value)(hostile_copy(item, name, text=text) for item in value)
    return value


def hostile_part(kind: type, seed: int) -> Any:
    """An instance of a report type in which every string is the attack, or a word that selects a branch."""
    return _filled(msgspec.inspect.type_info(kind), "", random.Random(seed), 0)


_WORDS = (
    *("rank", "freed", "live", "exception", "signaled", "exited", "in-storage", "past-storage", "stack-guard", "main"),
    *("python-exception", "clean", "static-input", "saved", "global", "completed", "asked", "C++", "mapped-file"),
)


def _filled(info: Any, name: str, draw: random.Random, depth: int) -> Any:
    inspect = msgspec.inspect
    if isinstance(info, inspect.UnionType):
        choices = [item for item in info.types if not isinstance(item, inspect.NoneType)]
        return None if depth > 5 or draw.random() < 0.1 else _filled(draw.choice(choices), name, draw, depth)
    if isinstance(info, inspect.StrType):
        if name in _NUMBERS:
            return "ab12" if name == "bytes" else hex(draw.randrange(1 << 40))
        return draw.choice(_WORDS) if draw.random() < 0.3 else TEXT
    if isinstance(info, inspect.CustomType) and issubclass(info.cls, str):
        return info.cls(TEXT)
    if isinstance(info, inspect.BoolType):
        return draw.random() < 0.5
    if isinstance(info, inspect.IntType):
        return draw.choice((0, 1, 2, 3, 11, 4096))
    if isinstance(info, inspect.FloatType):
        return 1.5
    if isinstance(info, (inspect.ListType, inspect.SetType, inspect.CollectionType)):
        return [_filled(info.item_type, name, draw, depth + 1) for _ in range(draw.randrange(1, 4))]
    if isinstance(info, inspect.DictType):
        return {
            _filled(info.key_type, "", draw, depth + 1): _filled(info.value_type, "", draw, depth + 1) for _ in range(2)
        }
    if isinstance(info, (inspect.StructType, inspect.DataclassType)):
        return info.cls(**{item.name: _filled(item.type, item.name, draw, depth + 1) for item in info.fields})
    return TEXT if isinstance(info, inspect.AnyType) else None
