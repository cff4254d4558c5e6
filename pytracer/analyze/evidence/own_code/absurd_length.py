"""A length that no container can have: `std::vector<long> row(end - begin)`, with an `end` that is before `begin`.

The C++ library throws std::length_error or std::bad_array_new_length. Read as text: what the failing line of the
program's own C++ computes the length of, and, of the difference of two neighbors in an array, what chose these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.native.aborts import cpp_exception
from pytracer.analyze.evidence.native.fault_function import is_of_own_image, is_own_frame
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.c_text import (
    arguments_at,
    closing,
    declared_name,
    function_around,
    statement_at,
)
from pytracer.analyze.evidence.own_code.c_text import without_comments as plain
from pytracer.analyze.evidence.own_code.c_values import resolved
from pytracer.analyze.evidence.own_code.evaluated import body_of, evaluated, given_for
from pytracer.analyze.evidence.own_code.native_bounds import assigned_value
from pytracer.analyze.evidence.own_code.native_source import own_sources
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArray, PassedArrays
from pytracer.analyze.evidence.own_code.passed_through import levels
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView

_THROWN = frozenset({"std::length_error", "std::bad_array_new_length"})
_SIZED = Pattern(
    r"\bstd::(?:vector|basic_string|deque)\s*<(?:[^<>;]|<[^<>;]*>)*>\s*(?P<name>\w*)\s*\(|\bstd::string\s+(?P<text>\w+)\s*\("
    r"|\b(?P<owner>\w+)\s*(?:\.|->)\s*(?:resize|reserve|assign)\s*\(|\bnew\s+[\w:<>]+\s*\["
)
_NAME = Pattern(r"^[A-Za-z_]\w*$")
_DIFFERENCE = Pattern(r"^(?P<later>[^-]+?)\s*-\s*(?P<former>[^-]+)$")
_ELEMENT = Pattern(r"^(?P<array>[A-Za-z_][\w.>-]*)\s*\[(?P<index>[^\[\]]*)\]$")
_CAST = Pattern(r"^\(\s*(?:\w+_t|(?:unsigned\s+)?(?:int|long)(?:\s+long)?)\s*\)\s*|^static_cast\s*<[\w: ]+>\s*")
_PRODUCT = Pattern(r"^[^-+/%&|^<?\[]*(?:->[^-+/%&|^<?\[]*)*$")
_MOST, _QUOTED = 24, 60


class NegativeNumber(msgspec.Struct, frozen=True):
    """`name`, a part of a length, which is `text`. `given`: what the line passes for its parts, with their numbers."""

    name: str
    text: str
    value: int
    given: tuple[str, ...]

    @property
    def words(self) -> str:
        """`` `windows` is -31 ``."""
        return f"`{self.name}` is {self.value}"

    def advice(self, line: str, function: str) -> str:
        """Which numbers do not go together."""
        told = (
            f"`{self.text}` = {self.value}"
            if self.name == self.text
            else f"`{self.text}` = {self.value}, `{self.name}`"
        )
        return (
            f"That is below 0 by {told}, for {list_words(self.given)} of {line}: leave out or change what is too small "
            f"before that line, and let {function}() refuse it."
        )


class AbsurdLength(msgspec.Struct, frozen=True):
    """`place`, in `function`, makes what is of `length`. `computed`: the same in elements of an array.

    `rows`: that array, of which `index` and the one behind it are the ends; `ids`: the array of the line that `index`
    is an element of.
    """

    place: LineWords
    function: str
    length: str
    computed: str | None = None
    rows: str | None = None
    index: str | None = None
    ids: PassedArray | None = None
    line: str = ""
    negative: NegativeNumber | None = None

    @property
    def summary(self) -> str:
        """For the headline."""
        if self.negative is not None:
            return f"`{self.length}` ({self.place}) is no length: {self.negative.words}"
        return f"`{self.length}` ({self.place}) is no length, below 0 or far too large"

    @property
    def advice(self) -> str:
        """What it is computed from, and where to look."""
        if self.negative is not None:
            made = f"{self.place} makes room for `{self.length}` elements."
            return f"{made} {self.negative.advice(self.line, self.function)}"
        made = f"{self.place} makes room for `{self.length}` elements, which is below 0 or far too large"
        if self.computed is None:
            return f"{made}: look for what that is computed from in what {self.line} passes."
        if self.rows is None or self.index is None:
            return f"{made}. It is `{self.computed}`: look for what these are in what {self.line} passes."
        of = f". It is `{self.computed}`" if self.computed != self.length else ""
        told = (
            f"{made}{of}: usually `{self.index}` is beyond what `{self.rows}` has, or the numbers in that do not go up."
        )
        check = f"let {self.function}() refuse other numbers before it reads `{self.rows}`"
        if self.ids is None:
            return f"{told} Compare what {self.line} passes with the number of its rows, and {check}."
        low, high = self.ids.low, self.ids.high
        numbers = f" (from {low} to {high})" if low is not None and high is not None else ""
        return (
            f"{told} `{self.index}` is a number of `{self.ids.name}`{numbers}, which {self.line} passes: compare these "
            f"with the number of rows, and {check}."
        )

    @property
    def places(self) -> tuple[Place, ...]:
        """The line that the advice names."""
        return ((self.place.file, self.place.line),) if self.place.line is not None else ()


def absurd_length(view: ProcessView) -> AbsurdLength | None:
    """None where the exception is another one, or its line may ask for another length."""
    exception = cpp_exception(view)
    steps = [*_steps(view)] if exception is not None and exception.type in _THROWN else []
    if not steps:
        return None
    file, number, lines = steps[0]
    text = plain("\n".join(lines))
    split = text.split("\n")
    place = statement_at(split, number)
    around, length = function_around(text, place), _length(text, place, place + len(split[number - 1]))
    if around is None or length is None:
        return None
    at, line = line_in(file, number, None), line_words(view)
    negative = _negative(view, number, length)
    found = AbsurdLength(at, around.name, shortened(length, _QUOTED), line=line, negative=negative)
    if negative is not None:
        return found
    computed = _difference(length, text[around.body : place])
    if computed is None:
        return found
    later, former = (_ELEMENT.match(item) for item in computed)
    found = msgspec.structs.replace(found, computed=shortened(" - ".join(computed), _QUOTED))
    if later is None or former is None or later["array"] != former["array"]:
        return found
    if re.sub(r"\s", "", later["index"]) != re.sub(r"\s", "", f"{former['index']}+1"):
        return found
    names = tuple(map(declared_name, around.parameters))
    ids = _ids(view, former["index"].strip(), around.name, names, text[around.body : place], steps)
    return msgspec.structs.replace(found, rows=former["array"], index=former["index"].strip(), ids=ids)


def _steps(view: ProcessView) -> Iterator[tuple[str, int, list[str]]]:
    """The lines of the program's own on the native stack, the innermost first."""
    for frame in filter(is_of_own_image, own_frames(view)[:_MOST]):
        for line, lines in own_sources(frame):
            if line.file is not None and line.line is not None:
                yield line.file, line.line, lines


def _length(text: str, place: int, end: int) -> str | None:
    """The only one that a line asks for."""
    found = [*_SIZED.finditer(text, place, end)]
    last = closing(text, found[0].end() - 1) if len(found) == 1 else None
    if last is None or re.match(r"[\])]\s*,\s*\w+\s*[({]", text[last:end]):  # or that of a second one
        return None
    parts, depth = text[found[0].end() : last], 0
    for at, letter in enumerate(parts):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:  # `(n, 0)`
            parts = parts[:at]
            break
    length = " ".join(parts.split())
    iterators = re.search(r"\b(?:begin|end)\s*\(", length) is not None
    return None if not length or length.isdecimal() or iterators else length


def _negative(view: ProcessView, number: int, length: str) -> NegativeNumber | None:
    """The part of a length that is below 0 by what Python passed: itself, or a variable that is a factor of it."""
    frame = next((item for item in own_frames(view) if is_own_frame(item) and item.function), None)
    way = [*levels(view, frame)] if frame is not None and view.crash is not None else []
    body = body_of(way) if way and way[0][2] == number else None
    if body is None:
        return None
    arrays = PassedArrays(view)
    factors = _PRODUCT.match(length) is not None  # of a sum a part may be below 0, and the sum is not
    for name in dict.fromkeys(
        (length, *re.findall(r"(?<![\w.>])[A-Za-z_]\w*\b(?!\s*(?:->|\.|\())", length if factors else ""))
    ):
        value, text = evaluated(name, body, arrays), resolved(name, body)[-1].text
        given = (*given_for(name, body, arrays),)
        if value is not None and value < 0 and given:
            return NegativeNumber(name, shortened(" ".join(text.split()), _QUOTED), value, given)
    return None


def _difference(length: str, before: str) -> tuple[str, str] | None:
    """Both sides of a difference, as what each of them was set to."""
    value = assigned_value([before], length) if _NAME.match(length) else None
    match = _DIFFERENCE.match(_CAST.sub("", value if value is not None else length).strip())
    if match is None:
        return None
    parts = [_CAST.sub("", item.strip()) for item in (match["later"], match["former"])]
    made = [assigned_value([before], item) if _NAME.match(item) else None for item in parts]
    known = [" ".join((new if new is not None else old).split()) for new, old in zip(made, parts, strict=True)]
    return (known[0], known[1]) if value is not None or known != parts or "[" in length else None


def _ids(
    view: ProcessView, index: str, function: str, names: tuple[str, ...], before: str,
    steps: list[tuple[str, int, list[str]]],
) -> PassedArray | None:  # fmt: skip
    """The array of the line that an index is an element of, over what one function passes to another."""
    arrays = PassedArrays(view)
    for at, step in enumerate(steps):
        value = assigned_value([before], index) if _NAME.match(index) and index not in names else None
        match = _ELEMENT.match(_CAST.sub("", (value or index).strip()))
        if match is not None:
            last = at + 1 == len(steps) and match["array"] in names
            return arrays.passed(function, names, names.index(match["array"])) if last else None
        if index not in names or at + 1 >= len(steps) or steps[at + 1][0] != step[0]:
            return None
        _, number, lines = steps[at + 1]
        given = arguments_at(lines, number, function)
        text = plain("\n".join(lines))
        around = function_around(text, statement_at(text.split("\n"), number))
        if given is None or around is None or names.index(index) >= len(given):
            return None
        index, function = given[names.index(index)].strip(), around.name
        names = tuple(map(declared_name, around.parameters))
        before = text[around.body : statement_at(text.split("\n"), number)]
    return None
