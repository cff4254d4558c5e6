"""An index or length that is the smallest integer: what a conversion of NaN or infinity to integers gives.

The processor has no integer for NaN, infinity or a float beyond the type: `.long()` and `.astype(int)` give the
smallest one instead, without an error. A program may also write that number down, as a marker; then no conversion is
named.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.not_finite.hazard import Hazard
from pytracer.analyze.evidence.failing.not_finite.reach import Part, parts_of
from pytracer.analyze.evidence.failing.not_finite.reason import NOT_FINITE
from pytracer.analyze.evidence.failing.not_finite.weights import (
    MOST_LINES,
    hazard_advice,
    hazard_subject,
    hazards_of,
)
from pytracer.analyze.evidence.indices.written_value import constant
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.conversions import integer_operand
from pytracer.analyze.evidence.syntax.nodes import nodes_of

SMALLEST = (-(1 << 31), -(1 << 63))
_NEAR = 1 << 31  # what a program adds to it, such as the first row of a part
_TOLD = Pattern(r"(?<![\w.])(-9223372036854775\d{3}|-9223372036\d{9}|-2147483648)(?!\w|\.\d)")
_MAY_MEAN = Pattern(r"out of (?:bounds|range)|negative|must be (?:>=|at least|positive)|< 0|tried to access index")
_RANGE = Pattern(r", (-?\d+)\.\.-?\d+$|(?:^| )(-\d+)$")


class Conversion(msgspec.Struct, frozen=True):
    """`operand` is what becomes integers by `node`; `found`: what can have made NaN or infinity of it."""

    node: ast.expr
    operand: ast.expr
    spot: Spot
    found: tuple[Hazard, ...] = ()


class Origin(msgspec.Struct, frozen=True):
    """Of the smallest integer: a conversion, a line that writes it down, or neither. `number`: as it was met."""

    number: int
    conversion: Conversion | None = None
    marker: Part | None = None

    @property
    def is_unknown(self) -> bool:
        """Whether no line is known that gave it."""
        return self.conversion is None and self.marker is None

    def words(self, at: FailingLine) -> str:
        """What the number is: ``what line 9 (`(x / y).long()`) makes of NaN or inf``."""
        if self.marker is not None:
            return f"what {_place(at, self.marker)} writes down (`{source(self.marker.node)}`)"
        if self.conversion is None:
            return f"what NaN, inf or a float beyond {self._type} becomes as an integer"
        place = _place(at, Part(self.conversion.node, self.conversion.spot))
        return f"what {place} (`{source(self.conversion.node)}`) makes of NaN or inf"

    def hazards(self, at: FailingLine) -> str:
        """`` ; line 8 divides by ... ``, or nothing."""
        return hazard_subject(at, self.conversion.found) if self.conversion is not None else ""

    def advice(self, at: FailingLine) -> str:
        """What to write, and where."""
        if self.marker is not None:
            return f"It marks what has no index: leave these elements out before line {at.line}."
        if self.conversion is None:
            return "Check the floats that it is computed from with isfinite() before they become integers."
        told = hazard_advice(at, self.conversion.found)
        place = _place(at, Part(self.conversion.node, self.conversion.spot))
        operand = source(self.conversion.operand)
        check = f"check `{operand}` with isfinite() before {place} makes integers of it"
        return told or f"{_capital(check)}."

    @property
    def _type(self) -> str:
        return "int32" if self.number == SMALLEST[0] else "int64"


def converted(at: FailingLine) -> str | None:
    """What made the number, and what to write there."""
    found = _cause(at)
    return f"{capital(found[0])}. {found[1].advice(at)}" if found is not None else None


def converted_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _cause(at)
    return f"{found[0]}{found[1].hazards(at)}" if found is not None else None


def is_smallest(number: int | None) -> bool:
    """Whether it is the smallest integer, or that and a little."""
    return number is not None and (number in SMALLEST or SMALLEST[1] <= number < SMALLEST[1] + _NEAR)


def origin_of(at: FailingLine, node: ast.AST, spot: Spot, number: int) -> Origin:
    """Of a value of an expression."""
    conversions, markers = [], []
    for part in parts_of(at, node, spot):
        for item in nodes_of(part.node):
            if isinstance(item, ast.expr) and _is_written(item, part.spot.tree):
                markers.append(Part(item, part.spot))
            operand = integer_operand(item) if isinstance(item, ast.Call) else None
            if isinstance(item, ast.Call) and operand is not None:
                conversions.append(Conversion(item, operand, part.spot))
    if markers:
        return Origin(number, marker=markers[0] if len(_lines(markers)) == 1 else None)
    each = {(item.spot.file, item.node.lineno): item for item in reversed(conversions)}
    made = [_with_hazards(at, item) for item in each.values()]
    bad = [item for item in made if item.found]
    chosen = bad if len(bad) == 1 else made
    return Origin(number, chosen[0] if len(chosen) == 1 else None)


def _cause(at: FailingLine) -> tuple[str, Origin] | None:
    """The number and what holds it, in words, and where that came from."""
    spot, told = at.slice.spot(0), _TOLD.search(at.message)
    if at.node is None or spot is None or (told is None and _MAY_MEAN.search(at.message) is None):
        return None
    held = {name: number for name in names_in(at.node) if (number := _least(at.values.get(name, ""))) is not None}
    held = {name: number for name, number in held.items() if is_smallest(number)}
    layer, call = at.layer, at.only(ast.Call)
    given = _least(at.values.get(f"input of {layer.name}", "")) if layer is not None else None
    if len(held) == 1:
        name, number = next(iter(held.items()))
        return _told(at, f"`{name}` has", origin_of(at, ast.parse(name, mode="eval").body, spot, number))
    if given is not None and is_smallest(given) and call is not None and call.args and not held:
        return _told(at, f"`{source(call.args[0])}` has", origin_of(at, call.args[0], spot, given))
    if told is None:
        return _inline(at, at.node, spot) if not held and given is None else None
    if held or not is_smallest(int(told[1])):
        return None
    index = at.only(ast.Subscript)
    return _told(at, "the index is", origin_of(at, index.slice if index is not None else at.node, spot, int(told[1])))


def _told(at: FailingLine, begins: str, origin: Origin) -> tuple[str, Origin]:
    return f"{begins} {origin.number}, {origin.words(at)}", origin


def _inline(at: FailingLine, node: ast.AST, spot: Spot) -> tuple[str, Origin] | None:
    """The only conversion of the failing expression, of what is recorded as NaN or infinite."""
    if getattr(at.snapshot, "arch", "") == "aarch64":
        return None  # where NaN becomes 0
    found = []
    for item in nodes_of(node):
        operand = integer_operand(item) if isinstance(item, ast.Call) else None
        if isinstance(item, ast.Call) and operand is not None:
            bad = [name for name in names_in(operand) if NOT_FINITE.search(at.values.get(name, ""))]
            found += [(bad[0], _with_hazards(at, Conversion(item, operand, spot)))] if bad else []
    if len(found) != 1:
        return None
    name, conversion = found[0]
    text, kind = ast.unparse(conversion.node), "inf" if at.values[name].endswith("inf") else "NaN"
    number = SMALLEST[0] if "32" in text or text.endswith(".int()") else SMALLEST[1]
    place = _place(at, Part(conversion.node, spot))
    words = f"`{name}` has {kind}, of which {place} (`{source(conversion.node)}`) makes {number}"
    return words, Origin(number, conversion)


def _least(value: str) -> int | None:
    found = _RANGE.search(value)
    return int(found[1] or found[2]) if found is not None else None


def _with_hazards(at: FailingLine, item: Conversion) -> Conversion:
    found = hazards_of(at, [Part(item.operand, item.spot)], lambda hazard: not hazard.backward)
    return Conversion(item.node, item.operand, item.spot, tuple(found) if len(found) <= MOST_LINES else ())


def _is_written(node: ast.expr, tree: ast.Module) -> bool:
    """`torch.iinfo(torch.int64).min`, `-2 ** 63`, `-(1 << 63)`, `-9223372036854775808`."""
    return isinstance(node, (ast.Attribute, ast.UnaryOp, ast.BinOp)) and constant(node, tree) in SMALLEST


def _lines(parts: Sequence[Part]) -> set[tuple[str | None, int]]:
    return {(item.spot.file, getattr(item.node, "lineno", 0)) for item in parts}


def _place(at: FailingLine, part: Part) -> str:
    return at.in_file(part.spot.file, getattr(part.node, "lineno", part.spot.line))


def _capital(words: str) -> str:
    return f"L{words[1:]}" if words.startswith("line ") else f"{words[0].upper()}{words[1:]}"
