"""What was to put elements into a container that is empty: the only call that is given it, and when that adds nothing;
or the lines that add to it.
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
    split,
    statement_at,
    without_parentheses,
)
from pytracer.analyze.evidence.own_code.c_text import without_comments as plain
from pytracer.analyze.evidence.own_code.passed_through import Level
from pytracer.analyze.evidence.own_code.short_allocations import statement_end
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
    found = _adds_nothing(text, file, called, split(given), name)
    if not found:
        return Filler(f"{words}.", (at_call,))
    when = list_words([f"where `{test}` ({at})" for test, at in found], conjunction="or")
    return Filler(f"{words}, and adds nothing {when}.", (at_call, *(at for _, at in found)))


def _calls(text: str, name: str, begin: int, end: int) -> Iterator[tuple[str, int, str]]:
    """The calls that are given the variable itself: function, place and arguments."""
    for match in re.finditer(rf"(?<![\w.>]){re.escape(name)}\s*(?=[,)])", text[begin:end]):
        found = call_around(text, begin + match.start())
        last = closing(text, found[1]) if found is not None else None
        if found is not None and last is not None:
            given = " ".join(text[found[1] + 1 : last].split())
            yield found[0], found[1], given


def _adds_nothing(text: str, file: str, called: str, given: tuple[str, ...], name: str) -> list[tuple[str, LineWords]]:
    """When a function adds nothing to the container: the only `if (...) return;` before, the `if` around it."""
    functions = [item for item in defined(text, called) if len(item.parameters) == len(given)]
    if len(functions) != 1 or name not in given:
        return []
    function = functions[0]
    inner, end = declared_name(function.parameters[given.index(name)]), closing(text, function.body)
    adds = [*re.finditer(_ADDS.format(re.escape(inner)), text[function.body : end])]
    if not adds:
        return []
    added, is_only = adds[0], len(adds) == 1
    last, early, around = function.body + added.start(), list[tuple[str, LineWords]](), list[tuple[str, LineWords]]()
    for match in re.finditer(r"\bif\s*(?P<open>\()", text[function.body : last]):
        opens = function.body + match.start("open")
        closes = closing(text, opens)
        if closes is None:
            continue
        test = shortened(" ".join(without_parentheses(text[opens : closes + 1]).split()), _QUOTED)
        if re.match(r"\s*\{?\s*(?:return|continue)\s*;", text[closes + 1 : last]):
            early.append((test, _line(text, file, opens)))
        elif is_only and statement_end(text, closes + 1) > last:
            around.append((f"!({test})", _line(text, file, opens)))
    return [*early, *around] if len(early) <= 1 and len(around) <= 1 else []


def _line(text: str, file: str, place: int) -> LineWords:
    return line_in(file, text.count("\n", 0, place) + 1, None)
