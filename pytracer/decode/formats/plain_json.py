"""Untrusted JSON, with limits on its memory and its numbers.

`[[],[],...` takes 24 bytes of memory for each byte of the file, so values are counted before they are created. The
result can be written as JSON again: numbers fit into 64 bits, text has no unpaired surrogates.
"""

from __future__ import annotations

import json
import re

import msgspec

MOST_VALUES = 3_000_000  # of at most 120 bytes each, containers and keys included
_LONG_NUMBER = re.compile(rb"[0-9]{19}")


def load_json(data: bytes) -> object:
    """The value of a JSON text; bytes that are no UTF-8 and halves of surrogate pairs become replacement characters.

    Raises:
        ValueError: it is no JSON, or holds too many values or a number of more than 64 bits.
        RecursionError: it is nested too deeply.
    """
    if sum(map(data.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise ValueError(f"it holds more than {MOST_VALUES} values")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        data = (text := data.decode("utf-8", "replace")).encode()
    if b"\\ud" not in data and b"\\uD" not in data and _LONG_NUMBER.search(data) is None:
        del text
        return _decoded(data)
    value = json.loads(text, parse_int=_number)
    return _decoded(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _decoded(data: bytes) -> object:
    try:
        return msgspec.json.decode(data)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None


def _number(text: str) -> int:
    value = int(text) if len(text) <= 20 else 1 << 64
    if not -(1 << 63) <= value < 1 << 64:
        raise ValueError("a number has more than 64 bits")
    return value
