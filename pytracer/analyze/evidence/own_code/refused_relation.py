"""Two numbers that do not go together, by a test of the program's own C: `assert(k < n)`, with 12 and 9.

The test is before a throw or in an assertion, and compares what Python passed: both numbers are known, and with them it
refuses.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.native.fault_function import is_own_frame
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.c_divisions import Body
from pytracer.analyze.evidence.own_code.evaluated import body_of, evaluated, given_for, is_number
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArrays
from pytracer.analyze.evidence.own_code.passed_through import levels
from pytracer.analyze.evidence.own_code.refused_number import HOW, deciding_parts, deciding_tests
from pytracer.analyze.naming import line_in
from pytracer.analyze.view import ProcessView

_RELATION = Pattern(r"^(?P<left>[^<>=!&|?]+?)\s*(?P<how>[<>]=?|[!=]=)\s*(?P<right>[^<>=!&|?]+)$")
_QUOTED = 60


class RefusedRelation(msgspec.Struct, frozen=True):
    """`place` tests `test`. `numbers`: of its parts, `` `k` is 12 ``; `given`: what `line` passes for them."""

    test: str
    place: str
    numbers: tuple[str, ...]
    given: tuple[str, ...]
    line: str

    @property
    def summary(self) -> str:
        """Behind the function in a headline."""
        return f"{list_words(self.numbers)}, by what {self.line} passes"

    @property
    def advice(self) -> str:
        """What to compare before."""
        return (
            f"Compare {list_words(self.given)} before {self.line} passes {'them' if len(self.given) > 1 else 'it'}, "
            f"and leave out or change what does not fit: {self.place} asks for `{self.test}`."
        )


def refused_relation(view: ProcessView) -> RefusedRelation | None:
    """Of the program's innermost function; None where a number of the test is not known, or it would not refuse."""
    frame = next((item for item in own_frames(view) if is_own_frame(item) and item.function), None)
    source = own_source(frame) if frame is not None else None
    way = [*levels(view, frame)] if frame is not None and source is not None and view.crash is not None else []
    body = body_of(way)
    if body is None or source is None:
        return None
    arrays = PassedArrays(view)
    function, lines, number = way[0]
    for test, refuses, at in deciding_tests(body.file, function.body, lines, number):
        found = next(_refused(test, refuses, body, arrays), None)
        if found is not None:
            text = " ".join(test.split())
            needs = text if not refuses else f"!({text})"
            place = str(line_in(source[0].file, body.file.count("\n", 0, at) + 1, None))
            return RefusedRelation(shortened(needs, _QUOTED), place, *found, line_words(view))
    return None


def _refused(
    test: str, refuses: bool, body: Body, arrays: PassedArrays
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Comparisons of which both numbers are known, and that refuse these."""
    parts, refuses = deciding_parts(test, refuses)
    for part in parts:
        match = _RELATION.match(part)
        if match is None:
            continue
        sides = [match["left"].strip(), match["right"].strip()]
        left, right = (evaluated(item, body, arrays) for item in sides)
        if left is None or right is None or HOW[match["how"]](left, right) is not refuses:
            continue
        named = [(item, value) for item, value in zip(sides, (left, right), strict=True) if not is_number(item)]
        given = dict.fromkeys(text for item in sides for text in given_for(item, body, arrays))
        if given:
            yield tuple(f"`{item}` is {value}" for item, value in named), tuple(given)
