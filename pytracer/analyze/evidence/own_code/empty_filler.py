"""What was to put elements into a container that is empty: the only call that is given it, and the line at which that
may return with nothing added; or the lines that add to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.own_code.c_text import (
    call_around,
    closing,
    declared_name,
    defined,
    function_around,
    split,
    statement_at,
    without_parentheses,
)
from pytracer.analyze.evidence.own_code.c_text import without_comments as plain
from pytracer.analyze.evidence.own_code.passed_through import Level
from pytracer.analyze.naming import LineWords, line_in

_ADDS = r"(?<![\w.>]){}\s*\.\s*(?:push_back|emplace_back|insert|resize|assign|emplace)\s*\("
_MOST, _QUOTED = 3, 70


class Filler(msgspec.Struct, frozen=True):
    """`words`: a sentence; `lines`: those that it names."""

    words: str
    lines: tuple[LineWords, ...]


def filler(level: Level, name: str, file: str) -> Filler | None:
    """Of a variable of a function of the way, up to its running line."""
    function, lines, number = level
    text = plain("\n".join(lines))
    begin, end = function.body, statement_at(text.split("\n"), number)
    if function.place_of(name) is not None:
        return None
    adds = [begin + item.start() for item in re.finditer(_ADDS.format(re.escape(name)), text[begin:end])]
    calls = [*_calls(text, name, begin, end)]
    if adds and not calls:
        at = [_line(text, file, place) for place in adds][:_MOST]
        return Filler(f"Only {list_words(at)} would have added to it.", tuple(at))
    if adds or len(calls) != 1:
        return None
    called, place, given = calls[0]
    at_call = _line(text, file, place)
    words = f"`{shortened(f'{called}({given})', _QUOTED)}` at {at_call} alone could add to it"
    early = _early_return(text, file, called, split(given), name)
    if early is None:
        return Filler(f"{words}.", (at_call,))
    return Filler(f"{words}, and returns with nothing added at {early[0]} where `{early[1]}`.", (at_call, early[0]))


def _calls(text: str, name: str, begin: int, end: int) -> Iterator[tuple[str, int, str]]:
    """The calls that are given the variable itself: function, place and arguments."""
    for match in re.finditer(rf"(?<![\w.>]){re.escape(name)}\s*(?=[,)])", text[begin:end]):
        found = call_around(text, begin + match.start())
        last = closing(text, found[1]) if found is not None else None
        if found is not None and last is not None:
            given = " ".join(text[found[1] + 1 : last].split())
            yield found[0], found[1], given


def _early_return(text: str, file: str, called: str, given: tuple[str, ...], name: str) -> tuple[LineWords, str] | None:
    """The only `if (...) return;` of a function that comes before all that it adds to the container."""
    functions = [item for item in defined(text, called) if len(item.parameters) == len(given)]
    place = given.index(name) if name in given else None
    if len(functions) != 1 or place is None:
        return None
    function = functions[0]
    inner, end = declared_name(function.parameters[place]), closing(text, function.body)
    added = re.search(_ADDS.format(re.escape(inner)), text[function.body : end])
    last = function.body + added.start() if added is not None else None
    if last is None:
        return None
    returns = [*re.finditer(r"\bif\s*(?P<open>\()", text[function.body : last])]
    found = []
    for match in returns:
        opens = function.body + match.start("open")
        closes = closing(text, opens)
        if closes is not None and re.match(r"\s*\{?\s*return\s*;", text[closes + 1 : last]):
            found.append((_line(text, file, opens), without_parentheses(text[opens : closes + 1])))
    if len(found) != 1 or (around := function_around(text, last)) is None or around.name != function.name:
        return None
    return found[0][0], shortened(" ".join(found[0][1].split()), _QUOTED)


def _line(text: str, file: str, place: int) -> LineWords:
    return line_in(file, text.count("\n", 0, place) + 1, None)
