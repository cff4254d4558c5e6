"""What a native function does with the elements of an array that it is given, as its source says.

Read as text: an element that bounds a loop or is an index leads out of memory when it is read as another number. One
that is only computed with does not, nor one that is cut to a range by a mask, a remainder or a shift.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.own_code.c_text import closing
from pytracer.analyze.evidence.own_code.native_bounds import LOOP, NAME, assigned_value

_CUT = Pattern(r"%|&|\^|>>")
_ARRAY = Pattern(r"(?<![\w.>])(?P<name>[A-Za-z_]\w*(?:(?:->|\.)\w+)*)\s*\[")
_HOPS = 4
_WHILE = Pattern(r"\bwhile\s*\(")


def leads_to_memory(body: str, parameter: str) -> bool:
    """Whether an element of `parameter` bounds a loop or is an index, directly or by a variable that is set once.

    Args:
        body: Of the function, with its head.
        parameter: A pointer.
    """
    return _leads(body, parameter, [*_bounds(body), *indices_of(body)])


def is_index_of(line: str, body: str, parameter: str) -> bool:
    """The same of the indices of one line of `body`."""
    return _leads(body, parameter, [*indices_of(line)])


def _leads(body: str, parameter: str, uses: list[str]) -> bool:
    element = _element(body, parameter)
    texts, seen = body.splitlines(), set[str]()
    waiting = [item for item in uses if not _CUT.search(item)]
    for _ in range(_HOPS):
        if any(element.search(item) for item in waiting):
            return True
        names = {name for item in waiting for name in NAME.findall(item)} - seen
        seen |= names
        values = [value for name in sorted(names) if (value := assigned_value(texts, name)) is not None]
        waiting = [value for value in values if not _CUT.search(value)]
    return False


def first_indexed(body: str, parameter: str) -> tuple[str, int] | None:
    """`dx[act[i]]`, of an array that is indexed by an element of `parameter`, and how many lines of `body` are before.

    None where that is reached by a variable only.
    """
    element = _element(body, parameter)
    for match in _ARRAY.finditer(body):
        end = closing(body, match.end() - 1)
        inside = body[match.end() : end] if end is not None else ""
        if match["name"] != parameter and element.search(inside) and not _CUT.search(inside):
            return " ".join(body[match.start() : (end or 0) + 1].split()), body.count("\n", 0, match.start())
    return None


def _element(body: str, parameter: str) -> re.Pattern[str]:
    """`lengths[b]` or `*lengths`, by its own name or by that of another pointer to the same array."""
    others = re.findall(rf"\b(\w+)\s*=\s*(?:\([^()]*\)\s*)?{re.escape(parameter)}\s*;", body)
    names = "|".join(re.escape(name) for name in dict.fromkeys([parameter, *others]))
    return re.compile(rf"(?<![\w.>])(?:(?:{names})\s*\[|(?<=\*)(?:{names})\b)")


def _bounds(body: str) -> Iterator[str]:
    """Of its loops."""
    yield from (match["bound"] for match in LOOP.finditer(body))
    for match in _WHILE.finditer(body):
        end = closing(body, match.end() - 1)
        if end is not None:
            yield body[match.end() : end]


def indices_of(body: str) -> Iterator[str]:
    """What stands in brackets, without what stands in brackets there."""
    opened: list[int] = []
    for at, letter in enumerate(body):
        if letter == "[":
            opened.append(at)
        elif letter == "]" and opened:
            yield body[opened.pop() + 1 : at]
