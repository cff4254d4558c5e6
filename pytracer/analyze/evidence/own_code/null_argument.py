"""A null pointer that the program's own C got from a call and passes on to the function that uses it.

`node *tree = build(ids, n); query(tree, q);`, with `build()` that returns null for no ids, and `query()` that asks for
nothing. Read as text along the native stack, from the failing line outwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.native.fault_function import is_own_frame
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.c_text import (
    arguments_at,
    closing,
    function_around,
    statement_at,
    statement_span,
)
from pytracer.analyze.evidence.own_code.c_text import without_comments as plain
from pytracer.analyze.evidence.own_code.native_bounds import assigned_value
from pytracer.analyze.evidence.own_code.native_source import own_sources
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArray, PassedArrays
from pytracer.analyze.evidence.own_code.unchecked_result import (
    FURTHER,
    THROUGH,
    UncheckedResult,
    is_asked,
    is_given,
    is_moved,
    returned_null,
)
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView
from pytracer.report.job import NativeFrame

_MOST = 6
_TIMES = Pattern(r"(?<=[\w)\]])(?<!return)(?<!else)(\s*)\*")
_DECLARES = Pattern(r"^\s*(?:const\s+)?(?:struct\s+)?\w+\s*(?:const\s*)?\*+\s*(?:const\s+)?\w+\s*=")
_NAME = Pattern(r"^[A-Za-z_]\w*$")
_DIFFERENCE = Pattern(r"^(?P<name>[A-Za-z_]\w*)\s*\[(?P<later>.*)\]\s*-\s*(?P=name)\s*\[(?P<former>.*)\]$")
_COUNT = Pattern(r"^(?P<name>[A-Za-z_]\w*)\s*(?:==\s*0|<=\s*0|<\s*1)$")


class NullArgument(msgspec.Struct, frozen=True):
    """`result` is passed to `function`, which calls it `parameter`.

    `count`: what the source computes it from, where null is returned for a count of 0; `groups`: the array of the line
    that this is a difference of neighbors of.
    """

    result: UncheckedResult
    function: str
    parameter: str
    count: tuple[str, str] | None = None
    groups: PassedArray | None = None
    line: str = ""

    @property
    def summary(self) -> str:
        """For the headline."""
        return f"{self.result.summary}; {self.function}() has it as `{self.parameter}`"

    @property
    def advice(self) -> str:
        """The check that is missing, and what is empty."""
        result = self.result
        asks = f" where `{result.asks}`" if result.asks is not None else ""
        returned = f", which returns null at {result.returned}{asks}" if result.returned is not None else ""
        check = (
            f"Check `{result.name}` before {result.place} passes it to {self.function}(): nothing does behind "
            f"`{result.call}` at {result.made_at}{returned}."
        )
        if self.count is None:
            return f"{check} Let {result.function}() skip that, or report it to its caller."
        name, value = self.count
        made = f"{check} `{name}` is `{value}` there"
        if self.groups is None:
            return f"{made}: let {result.function}() skip what is empty."
        array = self.groups.name
        step = f"np.diff({array})" if self.groups.base is None else f"{array}.diff()"
        return (
            f"{made}: let {result.function}() skip an empty group, or leave these out of `{array}`, which {self.line} "
            f"passes: `({step} == 0).nonzero()`."
        )

    @property
    def places(self) -> tuple[Place, ...]:
        """The lines that the advice names."""
        lines: list[LineWords | None] = [self.result.made_at, self.result.place, self.result.returned]
        return tuple((item.file, item.line) for item in lines if item is not None and item.line is not None)


class _Step(msgspec.Struct, frozen=True):
    """A line of a function on the native stack."""

    frame: NativeFrame
    file: str
    number: int
    lines: list[str]


def null_argument(view: ProcessView) -> NullArgument | None:
    """None where another pointer of the failing line may be null, or a function on the way may ask for it."""
    instruction, steps = view.instruction, [*_steps(view)]
    if len(steps) < 2 or instruction is None or instruction.base_value != 0:
        return None
    text = plain("\n".join(steps[0].lines))
    place, end = statement_span(text.split("\n"), steps[0].number)
    names = _gone_through(text[place:end])
    return _outwards(view, steps, 0, names, end) if names else None


def _outwards(view: ProcessView, steps: list[_Step], at: int, names: set[str], end: int) -> NullArgument | None:
    """To the function that calls the one at `at`: which of these parameters it gives a pointer that may be null."""
    if at + 1 >= len(steps):
        return None
    text = plain("\n".join(steps[at].lines))
    around = function_around(text, statement_at(text.split("\n"), steps[at].number))
    given = arguments_at(steps[at + 1].lines, steps[at + 1].number, around.name) if around is not None else None
    if around is None or given is None:
        return None
    body = text[around.body : closing(text, around.body)]
    places = {name: around.place_of(name) for name in names}
    if any(place is None or place >= len(given) or is_moved(body, name) for name, place in places.items()):
        return None
    passed = {name: given[place].strip() for name, place in places.items() if place is not None}
    maybe = {name: value for name, value in passed.items() if not value.startswith("&")}  # of its own variables
    if len(maybe) != 1:
        return None
    name, value = next(iter(maybe.items()))
    if not _NAME.match(value) or is_asked(text[around.body : end], name) or _is_set(body, name):
        return None
    outer = steps[at + 1]
    outer_text = plain("\n".join(outer.lines))
    place = statement_at(outer_text.split("\n"), outer.number)
    result = returned_null(view, outer.frame, (outer.file, outer_text), value, place, place, outer.number)
    if result is None:
        return _outwards(view, steps, at + 1, {value}, place)
    count = _count(outer_text, result, place)
    groups = _groups(view, outer_text, count[1], place) if count is not None and at + 2 == len(steps) else None
    return NullArgument(result, around.name, name, count, groups, line_words(view))


def _steps(view: ProcessView) -> Iterator[_Step]:
    """The innermost lines of the program's own, as long as all are of one file."""
    files = set()
    for frame in own_frames(view)[:_MOST]:
        found = own_sources(frame) if is_own_frame(frame) else []
        if not found or len(found) != len(frame.lines or ()):
            return
        for line, lines in found:
            files.add(line.file)
            if len(files) > 1 or line.file is None or line.line is None:
                return
            yield _Step(frame, line.file, line.line, lines)


def _gone_through(running: str) -> set[str]:
    """The pointers that a line goes through; nothing where one of their members may be null as well."""
    code = _TIMES.sub(r"\1+", _DECLARES.sub("", running))
    names = {match["name"] or match["pointed"] for match in THROUGH.finditer(code)}
    return set() if FURTHER.search(code) or any(is_given(code, name) for name in names) else names


def _is_set(body: str, name: str) -> bool:
    return re.search(rf"(?<![\w.>*]){re.escape(name)}\s*=(?!=)", body) is not None


def _count(text: str, result: UncheckedResult, place: int) -> tuple[str, str] | None:
    """`n` and `ptr[b + 1] - ptr[b]`, where null is returned for `n == 0`."""
    match = _COUNT.match(result.asks or "")
    around = function_around(text, place)
    value = assigned_value([text[around.body : place]], match["name"]) if match is not None and around else None
    return (match["name"], " ".join(value.split())) if match is not None and value is not None else None


def _groups(view: ProcessView, text: str, value: str, place: int) -> PassedArray | None:
    """The array that Python passed, of a difference of two neighbors."""
    match, around = _DIFFERENCE.match(value), function_around(text, place)
    if (
        match is None
        or around is None
        or re.sub(r"\s", "", match["later"]) != re.sub(r"\s", "", f"{match['former']}+1")
    ):
        return None
    at = around.place_of(match["name"])
    names = tuple(re.findall(r"\w+", item)[-1] for item in around.parameters)
    return PassedArrays(view).passed(around.name, names, at) if at is not None else None
