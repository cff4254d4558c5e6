"""A number that the program's own C++ refused by an exception or an assertion, and the array it was passed in.

`if (!(index >= 0)) throw ...` below `piece(ids[i])`: the test says which numbers are refused, the source which array
they are from, and memory, or what was recorded of a tensor, whether the array has one.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.indices.written_value import written_value
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.aborts import cpp_exception
from pytracer.analyze.evidence.native.fault_function import is_own_frame
from pytracer.analyze.evidence.native.native_stack import memory_word, own_frames
from pytracer.analyze.evidence.own_code.arrays import array_words
from pytracer.analyze.evidence.own_code.c_loops import body_end
from pytracer.analyze.evidence.own_code.c_text import (
    arguments_at,
    closing,
    declared_name,
    without_parentheses,
)
from pytracer.analyze.evidence.own_code.c_text import without_comments as plain
from pytracer.analyze.evidence.own_code.native_bounds import assigned_value
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArray, PassedArrays
from pytracer.analyze.evidence.own_code.passed_memory import called_by_ctypes
from pytracer.analyze.evidence.own_code.passed_through import Level, entered_with, is_assigned, levels
from pytracer.analyze.naming import line_in
from pytracer.analyze.view import ProcessView

_LEAVES = Pattern(r"\b(?:break|return|goto|throw)\b")
_IF = Pattern(r"\bif\s*\(")
# What else a throw may depend on, and a text, which may have such words.
_DECIDES = Pattern(r"\b(?:else|switch|case|default|for|while|return|try|catch|goto)\b")
_TEXT = Pattern(r'"(?:\\.|[^"\\\n])*"')
_ASSERTS = Pattern(r"\b(?:\w*assert|\w*CHECK\w*|\w*ENFORCE\w*|\w*ASSERT\w*)\s*\(")
_COMPARES = Pattern(r"^(?P<name>[A-Za-z_]\w*)\s*(?P<how>[<>]=?|[!=]=)\s*(?P<number>-?\d+)$")
_ELEMENT = Pattern(r"^(?P<array>[A-Za-z_]\w*)\s*\[\s*\w+\s*\]$")
_CAST = Pattern(r"^\(\s*(?:const\s+)?(?:\w+\s+)*\w+\s*\)\s*(?=[A-Za-z_(])")
HOW: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_INTEGER = Pattern(r"^u?int(8|16|32|64)$")
_QUOTED, _MOST_ELEMENTS, _BITS = 60, 4096, 8


class RefusedNumber(msgspec.Struct, frozen=True):
    """`value` of `array`, which the line passes, is what `place` refuses: there, `name` is tested by `test`.

    `element`: its place in the array, where memory shows it; `outer`: an array of a caller that has it, too.
    """

    value: int
    name: str
    test: str
    place: str
    array: str
    element: int | None
    line: str
    written: str | None
    outer: str | None
    by_ctypes: bool

    @property
    def summary(self) -> str:
        """Behind the function in a headline."""
        where = f"element {self.element} of" if self.element is not None else "a number of"
        return f"`{self.name}` is {self.value}, {where} {self.array}, which {self.line} passes"

    @property
    def advice(self) -> str:
        """The change to make."""
        outer = f"; {self.outer} has it already" if self.outer is not None else ""
        written = f" {self.written}" if self.written is not None else ""
        catch = (
            " ctypes cannot hand exceptions on: catch them in the function that it calls, and return an error."
            if self.by_ctypes
            else ""
        )
        return (
            f"Leave {self.value} out of {self.array}, or replace it, before {self.line} passes that{outer}: "
            f"{self.place} (`{self.test}`) refuses it.{written}{catch}"
        )


def refused_number(view: ProcessView) -> RefusedNumber | None:
    """Of the program's innermost function; None where no array of the line is known to have such a number."""
    own = (item for item in own_frames(view) if is_own_frame(item) and item.function)
    frame = next(own, None)
    source = own_source(frame) if frame is not None else None
    way = [*levels(view, frame)] if frame is not None and source is not None and view.crash is not None else []
    if not way or source is None:
        return None
    function, lines, number = way[0]
    text = plain("\n".join(lines))
    for test, name, refuses, at in _tests(text, function.body, lines, number):
        found = _array(view, way, text, name)
        value = _value(view, found, refuses) if found is not None else None
        if found is None or value is None:
            continue
        return RefusedNumber(
            value[0],
            name,
            shortened(test, _QUOTED),
            str(line_in(source[0].file, text.count("\n", 0, at) + 1, None)),
            f"`{found.name}` [{', '.join(map(str, found.sizes))}] {found.dtype}",
            value[1],
            line_words(view),
            written_value(view, value[0]),
            _outer(view, value[0]),
            called_by_ctypes(view) and cpp_exception(view) is not None,
        )
    return None


def _tests(
    text: str, low: int, lines: Sequence[str], number: int
) -> Iterator[tuple[str, str, Callable[[int], bool], int]]:
    """What decides that the running line throws: the test, its variable, which numbers it refuses, and its place."""
    for whole, refuses, at in deciding_tests(text, low, lines, number):
        yield from _parts(whole, refuses=refuses, at=at)


def deciding_tests(text: str, low: int, lines: Sequence[str], number: int) -> Iterator[tuple[str, bool, int]]:
    """The tests by which the running line throws or aborts; whether each refuses where it holds, and its place.

    Args:
        text: The file without comments.
        low: Where its function begins.
        lines: Of the file.
        number: Of the running line.
    """
    start = sum(len(item) + 1 for item in lines[: number - 1])
    end = start + len(lines[number - 1])
    for match in _ASSERTS.finditer(text, start, end):
        last = closing(text, match.end() - 1)
        if last is not None:
            yield text[match.end() : last], False, match.start()
    for match in reversed([*_IF.finditer(text, low, end)]):
        last = closing(text, match.end() - 1)
        behind = body_end(text, last + 1) if last is not None else None
        inside = behind is not None and last is not None and last < end and start < behind
        if inside and "throw" in text[last or 0 : behind] + lines[number - 1]:
            throws = text.find("throw", start, end)
            between = text[(last or 0) + 1 : throws if throws >= 0 else start]
            if _DECIDES.search(_TEXT.sub("", between)) is None:
                yield text[match.end() : last], True, match.start()
            return


def deciding_parts(text: str, refuses: bool) -> tuple[list[str], bool]:
    """The parts of a test each of which decides alone, and whether they refuse where they hold."""
    inner = without_parentheses(text)
    while inner.startswith("!"):
        inner, refuses = without_parentheses(inner[1:]), not refuses
    parts = re.split(r"\|\|" if refuses else r"&&", inner)
    return [_CAST.sub("", without_parentheses(part)).strip() for part in parts], refuses


def _parts(text: str, *, refuses: bool, at: int) -> Iterator[tuple[str, str, Callable[[int], bool], int]]:
    """Comparisons of a variable with a number, each of which decides alone."""
    whole, (parts, refuses) = without_parentheses(text), deciding_parts(text, refuses)
    for part in parts:
        match = _COMPARES.match(part)
        if match is not None:
            how, limit = HOW[match["how"]], int(match["number"])
            yield whole, match["name"], _refusal(how, limit, refuses), at


def _refusal(how: Callable[[int, int], bool], limit: int, refuses: bool) -> Callable[[int], bool]:
    return lambda value: how(value, limit) is refuses


def _array(view: ProcessView, way: Sequence[Level], text: str, name: str) -> PassedArray | None:
    """The array that Python passed, of which the variable is an element."""
    for level, (function, lines, _) in enumerate(way):
        body = plain("\n".join(lines))[function.body :]
        body = body[: closing(body, 0)]
        place = function.place_of(name)
        value = assigned_value([body], name) if place is None else None
        element = _ELEMENT.match(_CAST.sub("", value).strip()) if value is not None else None
        if element is not None:
            return _passed(view, way[level:], element["array"])
        if place is None or is_assigned(function, lines, name) or level + 1 == len(way):
            return None
        given = arguments_at(way[level + 1][1], way[level + 1][2], function.name)
        if given is None or place >= len(given):
            return None
        inner = _CAST.sub("", given[place]).strip()
        element = _ELEMENT.match(inner)
        if element is not None and _is_asked(way[level + 1], element["array"]):
            return None  # some of its numbers may not come here
        if element is not None:
            return _passed(view, way[level + 1 :], element["array"])
        name = inner
    return None


def _is_asked(caller: Level, array: str) -> bool:
    """Whether a condition on its elements may keep some of them from the call: one before it, or one that leaves."""
    function, lines, number = caller
    text = plain("\n".join(lines))
    call, end = sum(len(item) + 1 for item in lines[: number - 1]), closing(text, function.body) or len(text)
    for match in _IF.finditer(text, function.body, end):
        last = closing(text, match.end() - 1) or end
        if re.search(rf"\b{re.escape(array)}\s*\[", text[match.end() : last]) and (
            last < call or _LEAVES.search(text[last : body_end(text, last + 1)])
        ):
            return True
    return False


def _passed(view: ProcessView, way: Sequence[Level], name: str) -> PassedArray | None:
    """Of a pointer among the parameters, through the callers."""
    entered = entered_with(way, name)
    if entered is None:
        return None
    function, place = entered
    found = PassedArrays(view).passed(function.name, tuple(map(declared_name, function.parameters)), place)
    return found if found is not None and found.is_integer else None


def _value(view: ProcessView, array: PassedArray, refuses: Callable[[int], bool]) -> tuple[int, int | None] | None:
    """The first number that is refused, with its place; else the least or the largest one, if it is that."""
    for place in range(min(array.elements, _MOST_ELEMENTS)):
        word = memory_word(view.crash, array.data + place * array.nbytes, array.nbytes) if view.crash else None
        bits = _BITS * array.nbytes
        signed = word is not None and array.dtype.startswith("int") and word >> (bits - 1)
        value = word - (1 << bits) if word is not None and signed else word
        if value is not None and refuses(value):
            return value, place
    known = (item for item in (array.low, array.high, *array.some) if item is not None and refuses(item))
    found = next(known, None)
    return (found, None) if found is not None else None


def _outer(view: ProcessView, value: int) -> str | None:
    """`` `labels` [32, 9] int64 (line 97) ``: of the outermost caller whose array has it as its least or largest."""
    crash = view.crash
    if crash is None:
        return None
    having = {item.data for item in crash.arguments if value in (item.minimum, item.maximum) and item.data is not None}
    found = [
        item
        for item in crash.arrays
        if item.depth and item.data in having and _INTEGER.match(item.dtype or "") and item.frame.line is not None
    ]
    outer = max(found, key=lambda item: item.depth, default=None)
    return f"{array_words(outer)} ({place_of(view, outer.frame.file, outer.frame.line)})" if outer is not None else None
