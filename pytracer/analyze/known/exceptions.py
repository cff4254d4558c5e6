"""What to do after an exception that no known crash explains: `exceptions.toml`, by type and message.

Most exceptions that end a job are Python's or torch's own, and few: a key that is not there, shapes that do not fit.
The advice names the line, and the numbers and names of the message.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

_FILE = Path(__file__).resolve().parent / "exceptions.toml"
_LONGEST = 80
_MESSAGE_CHARACTERS = 4000  # the recorder writes no more
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class ExceptionEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`type`: names without modules; `message`: a regular expression, whose groups `advice` may name.

    `general`: it knows no more than what several messages have in common; operands with their values say more.
    `source`: a regular expression for the text of the program's line; an entry with one needs that text.
    """

    advice: str
    example: str
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
    return msgspec.toml.decode(_FILE.read_bytes(), type=_File).advice


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
    name, text = re.split(r"\.|::", kind or "")[-1], (message or "")[:_MESSAGE_CHARACTERS]
    for entry in exception_entries():
        if entry.type and name not in entry.type:
            continue
        if entry.source is not None and re.search(entry.source, source or "") is None:
            continue
        found = re.search(entry.message, text) if entry.message is not None else None
        if found is not None or entry.message is None:
            if entry.general and not general:
                return None
            return _filled(entry.advice, {**(found.groupdict() if found is not None else {}), "line": line})
    return None


def _filled(advice: str, names: Mapping[str, str | None]) -> str:
    """Words of a message may be long, and have braces."""
    return _PLACEHOLDER.sub(lambda found: _word(found[1], names), advice)


def _word(name: str, names: Mapping[str, str | None]) -> str:
    text = names.get(name) or "it"
    return text if name == "line" else _short(text)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
