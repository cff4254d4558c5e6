"""A function of the program's own C that follows an array by calling itself, and meets an element again.

`return 1 + depth_of(parent, parent[node]);` goes at most as deep as `parent` has elements, unless that leads back: a
recursion that is deeper goes in a circle, for which no stack is large enough, and no loop in its place ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.own_code.c_text import (
    Function,
    arguments_at,
    declared_name,
    statement_at,
    without_comments,
)
from pytracer.analyze.evidence.own_code.native_bounds import assigned_value, running_frame
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArray, PassedArrays
from pytracer.analyze.evidence.own_code.passed_through import NAME, Level, entered_with, levels
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView
from pytracer.report.job import StackCycle


class Circle(msgspec.Struct, frozen=True):
    """`function` calls itself at `place` with `text`, an element of `array`, which `line` passes. `made`: its line."""

    function: str
    place: LineWords
    text: str
    array: PassedArray
    line: str
    made: str | None

    @property
    def clause(self) -> str:
        """Behind the depth in a headline."""
        has = f"`{self.array.name}` has {self.array.elements} elements"
        return f"; it goes on at `{self.text}`, and {has}: it meets some again"

    @property
    def advice(self) -> str:
        """Where the circle is to be looked for."""
        made = f", of {self.made}" if self.made is not None else ""
        return (
            f"Look for a circle in `{self.array.name}`{made}, which {self.line} passes: by `{self.text}` "
            f"({self.place}) an element leads back to itself or to one that led to it. Let {self.function}() give up "
            f"after {self.array.elements} steps. Neither a larger stack nor a loop in its place ends that."
        )


def circle(view: ProcessView, cycle: StackCycle) -> Circle | None:
    """None where the recursion is no deeper than an array is long that it follows."""
    frame, repeats = running_frame(view), cycle.repeats or 0
    way = [*levels(view, frame)] if frame is not None and repeats else []
    if frame is None or not way or {item.function for item in cycle.frames or ()} != {way[0][0].name}:
        return None
    function, lines, number = way[0]
    given = arguments_at(lines, number, function.name)
    names = _names(function)
    if given is None or len(given) != len(names):
        return None
    if sum(text != name for text, name in zip(given, names, strict=True)) != 1:
        return None  # a number that is counted may end it: no circle is needed for so many calls
    arrays, source = PassedArrays(view), own_source(frame)
    texts = _set_from(given, names, _before(function, lines, number))
    for place, name in enumerate(names):
        found = [item for item in texts if _follows(item, name, names)] if given[place] == name else []
        array = _passed(arrays, way, name) if len(found) == 1 else None
        if array is not None and array.elements < repeats:
            at, made = line_in(source[0].file if source else None, number, None), arrays.made_at(array)
            return Circle(function.name, at, found[0], array, line_words(view), made)
    return None


def _before(function: Function, lines: Sequence[str], number: int) -> str:
    """Of its body, what comes before the call."""
    return without_comments("\n".join(lines))[function.body : statement_at(lines, number)]


def _set_from(given: Sequence[str], names: Sequence[str], before: str) -> list[str]:
    """The arguments, and of a local variable what it is set to."""
    made = [assigned_value([before], item) if NAME.match(item) and item not in names else None for item in given]
    return [(new if new is not None else old).strip() for new, old in zip(made, given, strict=True)]


def _follows(text: str, array: str, names: Sequence[str]) -> bool:
    """`parent[node]`: an element whose index is a parameter, and nothing else."""
    match = re.fullmatch(rf"{re.escape(array)}\s*\[\s*(?P<index>\w+)\s*\]", text)
    return match is not None and match["index"] in names


def _passed(arrays: PassedArrays, way: Sequence[Level], name: str) -> PassedArray | None:
    """What Python passes for a parameter of the innermost function, through those that called it."""
    entered = entered_with(way, name)
    return arrays.passed(entered[0].name, _names(entered[0]), entered[1]) if entered is not None else None


def _names(function: Function) -> tuple[str, ...]:
    return tuple(map(declared_name, function.parameters))
