"""Where a native function reads a number from one array and uses it as an index into another, as its source says."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.own_code.c_text import closing
from pytracer.analyze.evidence.own_code.own_signature import Definition

_ELEMENT = Pattern(r"\b(?P<name>\w+)\s*=\s*(?P<array>\w+)\s*\[(?P<index>[^\[\]]+)\]")
_ASKS = Pattern(r"\b(?:if|while|for|switch|assert)\s*\(")


class IndexRead(msgspec.Struct, frozen=True):
    """`text` at `place` reads `array`, for which the program passes `passed`. `rows`: the bounds of a row.

    Those are two elements of an array of offsets, one behind the other, that the index is computed from and that
    nothing compares.
    """

    text: str
    place: str
    array: str
    passed: str
    rows: tuple[str, str] | None


def index_reads(definition: Definition, into: str, passed: Mapping[str, str]) -> list[IndexRead]:
    """The elements that become an index into `into`, themselves or by a variable.

    Args:
        definition: The function.
        into: Its parameter that is indexed.
        passed: What the program passes for each of its arrays.
    """
    body, found = definition.body, []
    for array in passed:
        set_to = r"(?:\b(?P<name>\w+)\s*=\s*(?:\([\w ]+\)\s*)?)?"
        for match in re.finditer(rf"{set_to}(?<![\w.>]){re.escape(array)}\s*\[", body):
            end = closing(body, match.end() - 1)
            if end is None or not _is_index(body, into, match, array):
                continue
            text = " ".join(body[match.start() : end + 1].split())
            place = f"{definition.file}:{definition.line + body.count(chr(10), 0, match.start())}"
            rows = _rows(body, body[match.end() : end])
            found.append(IndexRead(text, place, array, passed[array], rows))
    return found


def _is_index(body: str, into: str, match: re.Match[str], array: str) -> bool:
    """`next[cur]` of `cur = col[...]`, or `next[col[...]]`."""
    name, of = match["name"], rf"(?<![\w.>]){re.escape(into)}\s*\[\s*"
    if name is not None:
        return re.search(rf"{of}{re.escape(name)}\s*[\]+]", body) is not None
    return re.search(rf"{of}$", body[: match.start()]) is not None


def _rows(body: str, index: str) -> tuple[str, str] | None:
    """`begin` and `end` of `begin = offsets[row], end = offsets[row + 1]`, where no condition reads one of them."""
    read = [match for match in _ELEMENT.finditer(body) if re.search(rf"\b{match['name']}\b", index)]
    pairs = [
        (low["name"], high["name"])
        for low in read
        for high in read
        if low["array"] == high["array"] and "".join(high["index"].split()) == "".join(low["index"].split()) + "+1"
    ]
    if len(pairs) != 1 or "?" in body or "%" in index:  # the remainder of a division by 0 is no element
        return None
    either = re.compile(rf"\b(?:{'|'.join(map(re.escape, pairs[0]))})\b")
    for match in _ASKS.finditer(body):
        end = closing(body, match.end() - 1)
        if end is None or either.search(body[match.end() : end]):
            return None
    return pairs[0]
