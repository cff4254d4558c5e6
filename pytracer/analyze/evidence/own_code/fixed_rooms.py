"""Buffers of C and C++ source with room for a fixed number per item, which are used for as many as an argument has.

`row = malloc(width * 4)`, and `row[x * channels + c]`: enough up to 4 channels. The use may be in a function that is
given the buffer. Read as text: only where nothing compares or changes that argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.own_code.c_text import (
    Function,
    calls_of,
    closing,
    declared_name,
    defined,
    without_parentheses,
)
from pytracer.analyze.evidence.own_code.native_bounds import LOOP

_NAME, _NUMBER = Pattern(r"^[A-Za-z_]\w*$"), Pattern(r"^\d+[uUlL]*$")
_CAST = Pattern(
    r"\(\s*(?:const\s+)?(?:std::)?(?:unsigned\s+)?(?:size_t|long|int|u?int\d+_t|ptrdiff_t)(?:\s+long)?\s*\)\s*"
)
_CPP_CAST = Pattern(r"\bstatic_cast<[\w:\s]+>\s*(?=\()")
_PRODUCT = Pattern(r"(?<![\w.>])([A-Za-z_]\w*)\s*\*\s*([A-Za-z_]\w*)\b(?!\s*[(\[.])")
_CALLED = Pattern(r"(?<![\w.>])([A-Za-z_]\w*)\s*\(")
_NO_CALLS = frozenset({"if", "for", "while", "switch", "return", "sizeof", "malloc", "free", "memset"})


class FixedRoom(msgspec.Struct, frozen=True):
    """Room for `most` per item (`room` as the source has it), used for `argument` of `function` at a place."""

    function: str
    parameters: tuple[str, ...]
    argument: str
    room: str
    most: int
    count: str
    at: int


def fixed_room(plain: str, function: Function, name: str, count: str, begin: int, end: int) -> FixedRoom | None:
    """Of a buffer that a function makes.

    Args:
        plain: The source without comments and texts.
        function: The one that makes it.
        name: The variable.
        count: How many elements it has: a product.
        begin: Behind its making.
        end: Of the function.
    """
    factors = [*_factors(count)]
    numbers = {item: value for item in factors if (value := _constant(plain, item)) is not None and value > 1}
    others = [item for item in factors if item not in numbers]
    if len(numbers) != 1 or len(others) != 1 or not _NAME.match(others[0]):
        return None
    if re.search(rf"(?<![\w.>]){re.escape(name)}\s*(?:=(?!=)|\.\s*(?:resize|assign|insert|swap)\b)", plain[begin:end]):
        return None  # made larger behind that
    room, most = numbers.popitem()
    for argument, at in _uses(plain, function, name, others[0], begin, end):
        place = function.place_of(argument)
        if place is not None and argument != others[0] and not _is_compared(plain[function.body : end], argument):
            names = tuple(declared_name(item) for item in function.parameters)
            return FixedRoom(function.name, names, argument, room, most, others[0], at)
    return None


def _uses(plain: str, function: Function, name: str, per: str, begin: int, end: int) -> Iterator[tuple[str, int]]:
    """What the number of items is multiplied with where the buffer is used; also in the functions it is given to."""
    own = {declared_name(item): declared_name(item) for item in function.parameters}
    yield from _multiplied(plain, (begin, end), name, per, {**own, per: per})
    for called in dict.fromkeys(match[1] for match in _CALLED.finditer(plain, begin, end)):
        if called in _NO_CALLS:
            continue
        inner = defined(plain, called)
        for at, given in calls_of(plain, called):
            last = closing(plain, inner[0].body) if len(inner) == 1 else None
            if not begin < at < end or last is None or name not in given or len(given) != len(inner[0].parameters):
                continue
            names = {
                declared_name(item): _stripped(value) for item, value in zip(inner[0].parameters, given, strict=True)
            }
            buffer = declared_name(inner[0].parameters[given.index(name)])
            yield from _multiplied(plain, (inner[0].body, last), buffer, per, names)


def _multiplied(
    plain: str, span: tuple[int, int], name: str, per: str, names: Mapping[str, str]
) -> Iterator[tuple[str, int]]:
    """`channels` of `row[x * channels + c]` and of `row + x * channels`, where `x` counts up to the items."""
    begin, end = span
    counters = {
        match["name"] for match in LOOP.finditer(plain, begin, end) if names.get(_stripped(match["bound"])) == per
    }
    for match in re.finditer(rf"(?<![\w.>]){re.escape(name)}\s*(?:\[|\+(?!\+))", plain[begin:end]):
        at = begin + match.end()
        last = closing(plain, at - 1) if plain[at - 1] == "[" else plain.find(";", at)
        if re.search(r"[/%]|>>", plain[at:last]):
            continue  # of fewer elements, such as of bits
        for one, other in _PRODUCT.findall(_stripped(plain[at:last])):
            for counter, factor in ((one, other), (other, one)):
                if counter in counters and names.get(factor) not in (None, per):
                    yield names[factor], begin + match.start()


def _factors(count: str) -> Iterator[str]:
    """`dst_w` and `CHANNELS_MAX` of `sizeof(int16_t) * (size_t)dst_w * CHANNELS_MAX`."""
    for item in re.split(r"\*(?![^()]*\))", _stripped(count)):
        text = without_parentheses(item)
        if text and not text.startswith("sizeof"):
            yield text


def _stripped(text: str) -> str:
    """Without casts to whole numbers."""
    return without_parentheses(_CPP_CAST.sub("", _CAST.sub("", text)).strip())


def _constant(plain: str, text: str) -> int | None:
    """A number, or a macro, a constant or an enumerator of the file that is one."""
    if _NUMBER.match(text):
        return int(text.rstrip("uUlL"))
    if not _NAME.match(text):
        return None
    ways = (
        rf"^[ \t]*#[ \t]*define[ \t]+{text}[ \t]+\(?\s*(\d+)[uUlL]*\s*\)?\s*$",
        rf"\bconst(?:expr)?\s+(?:static\s+)?(?:unsigned\s+)?\w+\s+{text}\s*=\s*(\d+)[uUlL]*\s*;",
        rf"\benum\b[^{{}};]*\{{[^}}]*\b{text}\s*=\s*(\d+)",
    )
    found = {int(match[1]) for way in ways for match in re.finditer(way, plain, re.MULTILINE)}
    return found.pop() if len(found) == 1 else None


def _is_compared(body: str, name: str) -> bool:
    """Whether a function asks how large an argument is, or changes it."""
    own = rf"(?<![\w.>]){re.escape(name)}\b"
    tests = rf"\b(?:if|while|switch|\w*assert|\w*CHECK\w*|\w*ASSERT\w*|min|max|clamp)\s*\([^;{{}}]*{own}|{own}[^;,]*\?"
    sets = rf"{own}\s*[-+*/]?=(?!=)|&\s*{own}|(?:\+\+|--)\s*{own}|{own}\s*(?:\+\+|--)"
    return re.search(tests, body) is not None or re.search(sets, body) is not None
