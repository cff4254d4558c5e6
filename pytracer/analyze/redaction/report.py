"""A report without what its reader may not want to share: for issues, chats and vendors.

`redact_report` is a function of the report alone. Every view - text, JSON, Markdown, HTML, a bundle - is made of its
result, so none of them can show more than the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import msgspec

from pytracer.analyze.redaction.vocabulary import vocabulary
from pytracer.analyze.redaction.words import Words
from pytracer.report import job as r

_COMMANDS = frozenset({"command", "sender_command"})
_PATHS = frozenset({"file", "path", "image", "directory", "directories"})
_MEMORY = frozenset({"memory_blocks", "content"})  # what lay in memory, as hexadecimal digits: any text of the program
# Enumerations, addresses and names of code: nothing of a machine or a person, and much of a report.
_AS_THEY_ARE = frozenset(
    {
        *("schema", "class_", "confidence", "kind", "role", "state", "found", "result", "why_kind", "language"),
        *("addr", "base", "start", "end", "low", "high", "pc", "value", "offset", "build_id", "function", "registers"),
        *("permissions", "signal", "access", "register", "torch", "cuda", "python", "code", "started"),
    }
)


def redact_report(report: r.Report, *, users: Collection[str] = (), hosts: Collection[str] = ()) -> r.Report:
    """The same report with placeholders for what is private.

    Replaced are secrets, by the table of `blackbox/secret_words.py`; credentials in URLs; the names of hosts and users,
    also where they occur in messages; and the directories of paths. Memory contents are left out. A secret that nothing
    announces, e.g. a bare word in a message, cannot be recognized (docs/guide/sharing.md).

    Args:
        report: stays as it is.
        users: names to replace in addition to those that the report's paths and URLs show, e.g. the reader's.
        hosts: likewise.

    Returns:
        The redacted report; `removed` counts the different values that were replaced, by kind.
    """
    strings = dict(_strings(report))
    words = Words(vocabulary(report, strings, users, hosts))
    for command in _commands(report):
        words.learn_command(command)
    for text in strings:
        words.learn(text)
    redacted: r.Report = _redacted(report, words, "")
    return msgspec.structs.replace(redacted, removed={kind: len(items) for kind, items in words.removed.items()})


def _strings(value: object, name: str = "") -> Iterator[tuple[str, None]]:
    """All strings that may hold something private, in the report's order."""
    if isinstance(value, str):
        if name not in _AS_THEY_ARE:
            yield value, None
    elif name in _MEMORY:
        return
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from _strings(getattr(value, field), field)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(f"{key}={item}" if name == "environment" else item, name)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item, name)


def _commands(value: object) -> Iterator[list[str]]:
    if isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            item = getattr(value, field)
            if field in _COMMANDS and item:
                yield item
            else:
                yield from _commands(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _commands(item)


def _redacted(value: Any, words: Words, name: str) -> Any:
    if value is None or isinstance(value, (int, float)) or (isinstance(value, str) and name in _AS_THEY_ARE):
        return value
    if name in _MEMORY:
        words.removed["memory_blocks"].update(map(str, value if isinstance(value, list) else [value]))
        return None
    if isinstance(value, str):
        return words.path(value) if name in _PATHS and value.startswith("/") else words.text(value)
    if isinstance(value, msgspec.Struct):
        changed = {}
        for field in value.__struct_fields__:
            old = getattr(value, field)
            if old is not None and (new := _redacted(old, words, field)) is not old:
                changed[field] = new
        return msgspec.structs.replace(value, **changed) if changed else value
    if isinstance(value, dict):
        return {words.text(key): _variable(key, item, words, name) for key, item in value.items()}
    if name in _COMMANDS:
        return words.command(value)
    return [_redacted(item, words, name) for item in value]


def _variable(key: str, value: object, words: Words, name: str) -> object:
    """A variable is read with its name, which may announce a secret."""
    if name == "environment" and isinstance(value, str):
        return words.text(f"{key}={value}").partition("=")[2]
    return _redacted(value, words, name)
