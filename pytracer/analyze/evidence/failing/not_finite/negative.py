"""A logarithm of values that a negative number of the program has multiplied or divided: they are negative, so NaN.

`divisor_override=-1` of pooling is no default, torch divides by it (torch 2.13, aten/src/ATen/native/cpu/
AvgPoolKernel.cpp). A number that is written beside an operand, `-1 * x`, is meant so, and does not count.
"""

from __future__ import annotations

import ast

from msgspec import structs

from pytracer.analyze.behind import Place
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.not_finite.hazard import WRITTEN, Hazard
from pytracer.analyze.evidence.failing.not_finite.hazards import operand_of
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value

_LOGARITHMS = ("log", "log2", "log10")
_ROOTS = ("sqrt", "rsqrt")
_DIVISOR = "divisor_override"
_DIVIDES = f"divides (`{_DIVISOR}`)"
_SAME = frozenset(
    {"mean", "sum", "flatten", "reshape", "view", "squeeze", "unsqueeze", "contiguous", "float", "double"}
)
_HOPS = 6


def by_negative_number(at: FailingLine, hazard: Hazard) -> Hazard:
    """The hazard with the line and the number that make its operand negative; as it was where none is known."""
    node = hazard.node
    if not isinstance(node, ast.Call) or called_name(node) not in (*_LOGARITHMS, *_ROOTS):
        return hazard
    operand = operand_of(node)
    made = at.slice.made(operand, hazard.spot, calls=False) if operand is not None else None
    found = _factor(at, made, _HOPS) if made is not None else None
    if operand is None or found is None:
        return hazard
    how, at_line, number = found
    what = "the log" if called_name(node) in _LOGARITHMS else "the root"
    line, where = at.in_file(at_line[0], at_line[1]), at.shown(number)
    same = (number.spot.file, number.line) == at_line
    by = f" by {source(number.node)}" if same else f" by {source(number.node)} ({where})"
    says = f"takes {what} of `{source(operand)}`, NaN below 0: {line} {how}{by}"
    make = (
        f"leave `{_DIVISOR}` out there, or pass None: torch divides by that number, whatever it is"
        if how == _DIVIDES
        else f"make it positive, or take {what} without it"
    )
    places = (at_line, (number.spot.file, number.line))
    return structs.replace(
        hazard, says=says, make=make, weight=WRITTEN, only="", operand=None, backward=False, also=places
    )


def _factor(at: FailingLine, found: Made, hops: int) -> tuple[str, Place, Made] | None:
    """What a line does with a negative number to make the value, where that is, and the number."""
    node, spot = found.node, found.spot
    if hops == 0:
        return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
        sides = (node.left, node.right) if isinstance(node.op, ast.Mult) else (node.right,)
        numbers = [number for side in sides if (number := _negative(at, side, spot)) is not None]
        if len(numbers) == 1 and not isinstance(numbers[0].node, ast.BinOp):
            how = "multiplies" if isinstance(node.op, ast.Mult) else "divides"
            return f"{how} (`{source(node)}`)", (spot.file, node.lineno), numbers[0]
        return None
    if not isinstance(node, ast.Call):
        return None
    divisor = keyword_value(node, _DIVISOR)
    number = _negative(at, divisor, spot, written=True) if divisor is not None else None
    if number is None:
        layer = at.slice.made(node.func, spot, calls=True)
        divisor = keyword_value(layer.node, _DIVISOR) if isinstance(layer.node, ast.Call) else None
        number = _negative(at, divisor, layer.spot, written=True) if divisor is not None else None
    if number is not None:
        return _DIVIDES, (spot.file, node.lineno), number
    inner = operand_of(node) if called_name(node) in _SAME else None
    return _factor(at, at.slice.made(inner, spot, calls=False), hops - 1) if inner is not None else None


def _negative(at: FailingLine, node: ast.expr, spot: Spot, *, written: bool = False) -> Made | None:
    """The number of the program that it is, if that is negative. `written`: also where it is written there."""
    made = at.slice.made(node, spot, calls=True)
    try:
        number = ast.literal_eval(made.node) if isinstance(made.node, ast.expr) else None
    except ValueError:
        return None
    known = isinstance(number, (int, float)) and (written or made.node is not node)
    return made if known and number is not None and number < 0 else None
