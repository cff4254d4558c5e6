"""A regular expression that repeats a repetition, such as `(a+)+b`: on a text that lacks the `b` it tries all splits.

CPython's `re` backtracks (Modules/_sre/sre_lib.h): where one text can be cut into rounds of the outer repetition in
many ways, and what follows does not match, each way is tried, and each further character doubles their number. Only
what is so in any case is found: an inner repetition beside which all other parts of the outer one may be empty. A
separator that must be there, `(a+,)+`, allows one way only; nor does an atomic group or a possessive `++` go back.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from pytracer._patterns import Pattern

_PARSER = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT")
_ZERO_WIDTH = ("AT", "ASSERT", "ASSERT_NOT")
_DEEPEST = 8
_QUANTIFIER = Pattern(r"(?:[*+]|\{\d+,\})")


def nested_repetition(pattern: str, flags: int = 0, *, whole: bool = False) -> str | None:
    """`([a-z-]+,?)+`, of a pattern after which something has to match; `whole`: the end of the text has to."""
    parsed = _parsed(pattern, flags)
    if parsed is None or not any(_nested(parsed, whole, _DEEPEST)):
        return None
    parts = (part for part in _repeated_groups(pattern) if _repeats_repetition(part, flags))
    return next(parts, pattern)


def _parsed(pattern: str, flags: int) -> Any:
    try:
        return _PARSER.parse(pattern, flags)
    except (re.error, RecursionError, OverflowError, ValueError):
        return None


def _repeats_repetition(part: str, flags: int) -> bool:
    parsed = _parsed(part, flags)
    return parsed is not None and any(_nested(parsed, True, _DEEPEST))


def _nested(items: Any, fails: bool, depth: int) -> Iterator[bool]:
    """Of a sequence and what is in it; `fails`: whether what comes behind it may not match."""
    for place, (code, value) in enumerate(items):
        may_fail = fails or any(not _may_be_empty(items, item) for item in items[place + 1 :])
        if str(code) in _REPEATS and _is_unbounded(value) and may_fail and _is_ambiguous(value[2], depth):
            yield True
        for inner in _parts(str(code), value) if depth else ():
            yield from _nested(inner, may_fail, depth - 1)


def _is_ambiguous(body: Any, depth: int) -> bool:
    """Whether two rounds of it match what one round does: all but a repetition in it may be empty."""
    if not depth:
        return False
    if len(body) == 1:
        code, value = str(body[0][0]), body[0][1]
        if code == "SUBPATTERN":
            return _is_ambiguous(value[-1], depth - 1)
        if code == "BRANCH":
            return any(_is_ambiguous(item, depth - 1) for item in value[1])
    for place, item in enumerate(body):
        rest = [other for number, other in enumerate(body) if number != place]
        if all(_may_be_empty(body, other) for other in rest) and _is_repetition(item, depth):
            return True
    return False


def _is_repetition(item: Any, depth: int) -> bool:
    code, value = str(item[0]), item[1]
    if code == "SUBPATTERN" and depth:
        return _is_ambiguous(value[-1], depth - 1)
    return code in _REPEATS and _is_unbounded(value) and value[2].getwidth()[1] > 0


def _is_unbounded(value: Any) -> bool:
    return bool(value[1] == _PARSER.MAXREPEAT)


def _may_be_empty(within: Any, item: Any) -> bool:
    """Whether it matches no character, wherever it stands: not so an anchor, or what looks ahead."""
    if str(item[0]) in _ZERO_WIDTH:
        return False
    return bool(type(within)(within.state, [item]).getwidth()[0] == 0)


def _parts(code: str, value: Any) -> Sequence[Any]:
    """The sequences in an item, but those that match once and for all."""
    if code in _REPEATS:
        return (value[2],)
    if code == "SUBPATTERN":
        return (value[-1],)
    return tuple(value[1]) if code == "BRANCH" else ()


def _repeated_groups(pattern: str) -> Iterator[str]:
    """`(...)+` of its text, the innermost first."""
    begins: list[int] = []
    place, in_class = 0, False
    while place < len(pattern):
        sign = pattern[place]
        if sign == "\\":
            place += 1
        elif sign == "[" and not in_class:
            in_class = True
            place += pattern[place + 1 : place + 2] == "^"
            place += pattern[place + 1 : place + 2] == "]"
        elif sign == "]":
            in_class = False
        elif sign == "(" and not in_class:
            begins.append(place)
        elif sign == ")" and not in_class and begins:
            begin, behind = begins.pop(), _QUANTIFIER.match(pattern, place + 1)
            if behind is not None:
                yield pattern[begin : behind.end()]
        place += 1
