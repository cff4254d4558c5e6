"""The integer divisions that a function of C or C++ may run, as its source says, with those of functions it calls.

Read as text, without a compiler: the compiler puts small functions of the same file into one another, and a division of
floats raises nothing. Where an operand may be of either kind, the division counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.own_code.c_text import (
    NO_FUNCTIONS,
    Function,
    blanked,
    calls_of,
    closing,
    declared_name,
    defined,
)
from pytracer.analyze.evidence.own_code.c_types import Kind, kind_of, returned_kind

_LARGEST, _MOST = 1 << 20, 256  # letters of a file, divisions
_HOPS = 3  # functions that are put into one another
_HIDDEN = Pattern(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'|^[ \t]*#[^\n]*", re.DOTALL | re.M)
_MACRO = Pattern(r"^[ \t]*#[ \t]*define[ \t]+(?P<name>\w+)(?P<body>(?:[^\n\\]|\\\n?)*)", re.M)
_OPERATOR = Pattern(r"[/%](?P<sets>=?)")
_CAST = Pattern(r"\(\s*(?:const\s+)?(?:(?:un)?signed|short|int|long|char|size_t|ssize_t|\w+_t)(?:\s+\w+)*\s*\)\s*")
_PRIMARY = Pattern(r"[-+~*&]*\s*(?:[A-Za-z_]\w*(?:::\w+)*|\d[\w.]*)")
_FURTHER = Pattern(r"\s*(?:(?:\.|->)\s*\w+)")
_TEMPLATE = Pattern(r"(?<=\w)<[\w:, ]*>(?=\s*\()")
_CALLED = Pattern(r"(?P<before>\.|->|(?<!\w))(?<![\w])(?P<name>[A-Za-z_]\w*)\s*\(")
_ENDS = "=;{}(,[?:<>&|+!"


class Body(msgspec.Struct, frozen=True):
    """A function of a file, without its comments. `given`: what `outer` passes; `spans`: lines of the calls to here."""

    function: Function
    text: str
    file: str
    given: tuple[str, ...] = ()
    outer: Body | None = None
    spans: tuple[tuple[int, int], ...] = ()

    @property
    def parameters(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(map(declared_name, self.function.parameters))


class Division(msgspec.Struct, frozen=True):
    """`text`: `numel / batch`, by `divisor` (`batch`), at `line` of the file. `spans`: lines of its statement, and of
    the calls that lead there, the outermost first.
    """

    text: str
    divisor: str
    line: int
    body: Body
    spans: tuple[tuple[int, int], ...]


class Divisions(msgspec.Struct, frozen=True):
    """`complete`: whether these are all that the function may run, but for those in files that it includes."""

    found: tuple[Division, ...]
    complete: bool


def plain(text: str) -> str:
    """A file without comments, texts and directives, each letter at its place."""
    return blanked(_HIDDEN, text)


def _without_templates(text: str) -> str:
    """`ceil_div     (a, b)` of `ceil_div<int>(a, b)`."""
    return _TEMPLATE.sub(lambda match: " " * len(match[0]), text)


def divisions(text: str, name: str) -> Divisions | None:
    """Those that the only function of that name may run; None where that is not found.

    Args:
        text: The whole file.
        name: Of the function that Python called, or of one that such a function called.
    """
    clean = _without_templates(plain(text))
    functions = defined(clean, name) if len(text) <= _LARGEST else []
    whole = _body(functions[0], clean) if len(functions) == 1 else None
    if whole is None:
        return None
    reader = _Reader(clean)
    found = tuple(islice(reader.within(whole, _HOPS), _MOST))
    used = {macro["name"] for macro in _MACRO.finditer(text) if re.search(r"[/%]", _HIDDEN.sub(" ", macro["body"]))}
    hidden = any(re.search(rf"\b{item}\b", clean) for item in used)
    return Divisions(found, reader.complete and not hidden and len(found) < _MOST)


class _Reader:
    """`complete`: whether each function of the file that may be called, and divides, was read."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._functions: dict[str, list[Function]] = {}
        self._without: set[tuple[str, int]] = set()  # functions that lead to no division, in so many hops
        self.complete = True

    def within(self, body: Body, left: int) -> Iterator[Division]:
        """Of a function, and of those that it calls."""
        yield from _own(body)
        for before, name in dict.fromkeys(_CALLED.findall(body.text)):
            functions = self._defined(name) if name not in (*NO_FUNCTIONS, body.function.name) else []
            bodies = [made for item in functions if (made := _body(item, self._file)) is not None]
            if len(bodies) == 1 and not before and left:
                yield from self._called(body, bodies[0], left)
            elif any(_OPERATOR.search(item.text) for item in bodies):
                self.complete = False  # an overload, a method, or too deep

    def _called(self, body: Body, inner: Body, left: int) -> Iterator[Division]:
        name = inner.function.name
        for at, given in calls_of(body.text, name):
            if (name, left) in self._without:
                return
            spans = (*body.spans, _span(body, at))
            made = msgspec.structs.replace(inner, given=given, outer=body, spans=spans)
            found = [*islice(self.within(made, left - 1), _MOST)]
            if not found:
                self._without.add((name, left))
            yield from found

    def _defined(self, name: str) -> list[Function]:
        if name not in self._functions:
            self._functions[name] = defined(self._file, name)
        return self._functions[name]


def _body(function: Function, file: str) -> Body | None:
    end = closing(file, function.body)
    return Body(function, file[function.body + 1 : end], file) if end is not None else None


def _own(body: Body) -> Iterator[Division]:
    declarations = [*body.function.parameters, *_statements(body.text)]
    for match in _OPERATOR.finditer(body.text):
        divisor = _right(body.text, match.end())
        left = _left(body.text, match.start())
        if divisor is None or not left:
            continue
        if "float" in (_kind(left, declarations, body), _kind(divisor, declarations, body)):
            continue
        at = body.function.body + 1 + match.start()
        text = f"{left} {match[0]} {divisor}"
        line = body.file.count("\n", 0, at) + 1
        spans = (*body.spans, _span(body, match.start()))
        yield Division(_one_line(text), _one_line(divisor), line, body, spans)


def _span(body: Body, at: int) -> tuple[int, int]:
    """The lines of the statement around a place."""
    first = max((body.text.rfind(letter, 0, at) for letter in ";{}"), default=-1) + 1
    first += len(body.text[first:at]) - len(body.text[first:at].lstrip())
    ends = [end for letter in ";{" if (end := body.text.find(letter, at)) >= 0]
    offset = body.function.body + 1
    return tuple(body.file.count("\n", 0, offset + place) + 1 for place in (first, min(ends, default=at)))  # type: ignore[return-value]


def _right(text: str, at: int) -> str | None:
    """The operand behind an operator: with casts, members, subscripts and what is called."""
    start = at + len(text[at:]) - len(text[at:].lstrip())
    end = start
    while (cast := _CAST.match(text, end)) is not None:
        end = cast.end()
    if text[end : end + 1] == "(":
        close = closing(text, end)
    else:
        primary = _PRIMARY.match(text, end)
        close = primary.end() - 1 if primary is not None else None
    if close is None:
        return None
    end = close + 1
    while True:
        member = _FURTHER.match(text, end)
        if member is not None:
            end = member.end()
        elif text[end : end + 1] in ("[", "(") and (inner := closing(text, end)) is not None:
            end = inner + 1
        else:
            return text[start:end].strip()


def _left(text: str, at: int) -> str:
    """The operand before an operator, with the product that it ends: `a * b` of `a * b / c`."""
    depth, start = 0, at
    for place in range(at - 1, -1, -1):
        letter = text[place]
        if letter in ")]":
            depth += 1
        elif letter in "([" and depth:
            depth -= 1
        elif depth == 0 and _is_end(text, place):
            break
        start = place
    return re.sub(r"^\s*return\b", "", text[start:at]).strip()


def _is_end(text: str, place: int) -> bool:
    """Whether an operand begins behind a letter; `->` is within one."""
    letter, around = text[place], text[max(place - 1, 0) : place + 2]
    if "->" in around and letter in "->":
        return False
    return letter in _ENDS or letter == "-"


def is_tested(divisor: str, text: str) -> bool:
    """Whether the function asks whether it is 0, or positive."""
    name = re.escape(re.sub(r"^[(\s]+|[)\s]+$", "", divisor))
    return (
        re.search(
            rf"(?<![\w.>]){name}\s*(?:\?|>\s*0|>=\s*1|<=\s*0|<\s*1|[!=]=\s*0)|!\s*{name}\b|"
            rf"(?:\bif\s*\(|&&|\|\|)\s*{name}\s*(?:\)|&&|\|\|)|(?:max|MAX)\w*\(\s*(?:1\s*,\s*{name}|{name}\s*,\s*1)\b",
            text,
        )
        is not None
    )


def _kind(text: str, declarations: Sequence[str], body: Body) -> Kind:
    return kind_of(text, declarations, lambda name: _of_call(name, body))


def _of_call(name: str, body: Body) -> Kind:
    return returned_kind(name, body.file)


def _statements(text: str) -> list[str]:
    return [item.strip() for item in re.split(r"[;{}]|\bfor\s*\(", text) if item.strip()]


def _one_line(text: str) -> str:
    return " ".join(text.split())
