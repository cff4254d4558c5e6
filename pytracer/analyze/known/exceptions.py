"""What an exception means that no known crash explains, and what to do: `exceptions/*.toml`, by type and message.

Most exceptions that end a job are Python's or torch's own, and few: a key that is not there, shapes that do not fit.
The advice names the line, and the numbers and names of the message. Files are asked in the order of `_FILES`, entries
in that of their file; the first that matches answers. Entries without `message` are for a type as such.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from pytracer._patterns import Pattern

_DIRECTORY = Path(__file__).resolve().parent / "exceptions"
# Words of one library first, those that many use last.
_FILES = (
    *("dynamo", "export", "script", "dispatch"),
    *("libraries", "hub", "frameworks", "vision", "arrays", "tools", "interpreter"),
    *("groups", "sharding", "distributed", "data", "formats"),
    *("devices", "dtypes", "indices", "layers", "conversions", "mathematics", "tensors"),
    *("autograd", "optimizers", "modules"),
    *("compile", "files", "python", "common"),
)
_LONGEST = 80
_MESSAGE_CHARACTERS = 4000  # the recorder writes no more
# Expressions that begin with a name try each character of a word: of one of 4,000 that took 43 s.
_LONG_WORD = Pattern(r"(\S{100})\S+?(\S{100})(?=\s|$)")
_PLACEHOLDER = Pattern(r"\{(\w+)\}")


class ExceptionEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`type`: names without modules; `message`: a regular expression, whose groups `advice` and `reason` may name.

    `advice`: what to do; `{line}` in it is the program's innermost line. `reason`: what the message means, where it
    does not say so: a clause for the headline. `example`: a message that it answers.

    `general`: it knows no more than what several messages have in common; operands with their values say more.
    `source`: a regular expression for the text of the program's line; an entry with one needs that text.
    """

    advice: str
    example: str
    reason: str | None = None
    type: tuple[str, ...] = ()
    message: str | None = None
    source: str | None = None
    general: bool = False
    source_example: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    advice: tuple[ExceptionEntry, ...]


@functools.cache
def exception_entries() -> tuple[ExceptionEntry, ...]:
    """All, in the order in which they are asked."""
    return tuple(
        entry
        for name in _FILES
        for entry in msgspec.toml.decode((_DIRECTORY / f"{name}.toml").read_bytes(), type=_File).advice
    )


def exception_advice(
    kind: str | None, message: str | None, line: str, source: str | None = None, *, general: bool = True
) -> str | None:
    """The advice of the first entry that matches.

    Args:
        kind: The exception's type, with or without its modules.
        message: Its message.
        line: What its line in the program is called.
        source: The text of that line, if it is known.
        general: Also an entry that is only general; without it, None where the first is one.
    """
    found = _first(kind, message, source)
    if found is None or (found[0].general and not general):
        return None
    return _filled(found[0].advice, {**found[1], "line": line})


def exception_reason(kind: str | None, message: str | None, source: str | None = None) -> str | None:
    """What the message means, where the first entry that matches knows; arguments as of exception_advice()."""
    found = _first(kind, message, source)
    return _filled(found[0].reason, found[1]) if found is not None and found[0].reason is not None else None


@functools.lru_cache(maxsize=4096)  # thousands of ranks end with the same words
def _first(
    kind: str | None, message: str | None, source: str | None
) -> tuple[ExceptionEntry, Mapping[str, str | None]] | None:
    """The entry that answers, and the groups of its expression."""
    name = re.split(r"\.|::", kind or "")[-1]
    text = _LONG_WORD.sub(r"\1\2", (message or "")[:_MESSAGE_CHARACTERS])
    for entry in exception_entries():
        if entry.type and name not in entry.type:
            continue
        if entry.source is not None and _compiled(entry.source).search(source or "") is None:
            continue
        found = _compiled(entry.message).search(text) if entry.message is not None else None
        if found is not None or entry.message is None:
            return entry, found.groupdict() if found is not None else {}
    return None


@functools.cache  # re itself keeps 512
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _filled(advice: str, names: Mapping[str, str | None]) -> str:
    """Words of a message may be long, and have braces."""
    return _PLACEHOLDER.sub(lambda found: _word(found[1], names), advice)


def _word(name: str, names: Mapping[str, str | None]) -> str:
    text = names.get(name) or "it"
    return text if name == "line" else _short(text)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
