"""A whole number that does not fit into 64 bits, as a `while` loop makes it greater until its condition turns false."""

from __future__ import annotations

import ast

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital, list_words, uncapital
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import is_parameter, own_nodes, spans, spans_body

_MESSAGE = Pattern(
    r"too large to convert|too big to convert|without overflow$|Overflow when unpacking long"
    r"|^Python int(?:eger)? \d{19,} out of bounds"
)
_KINDS = ("OverflowError", "RuntimeError", "TypeError")
_GROWS = (ast.Add, ast.Mult, ast.LShift, ast.Pow)
_MOST = 3


class GrownNumber(msgspec.Struct, frozen=True):
    """`name`: of the failing line; `grown`: of the function with the loop, at `line` of which it is set."""

    name: str
    grown: str
    spot: Spot
    loop: ast.While
    line: int


def grown_number(at: FailingLine) -> str | None:
    """Which variable, which loop, and what its condition compares."""
    found = _grown_number(at)
    if found is None:
        return None
    values = at.values_at(found.spot.depth or 0)
    known = [
        f"`{name}` was {values[name]}" for name in names_in(found.loop.test) if name in values and name != found.grown
    ]
    facts = f" ({list_words(known[:_MOST])})" if known else ""
    set_at = at.place(found.spot, found.line)
    return (
        f"{_begin(at, found)}, {set_at}, and its condition `{source(found.loop.test)}` had not turned false when the "
        f"number no longer fitted: see why it cannot{facts}, and let the loop end by a bound of its own. A wider type "
        "does not help."
    )


def grown_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _grown_number(at)
    if found is None:
        return None
    return f"{uncapital(_begin(at, found))} while `{source(found.loop.test)}`, which had not turned false"


def _begin(at: FailingLine, found: GrownNumber) -> str:
    loop = f"the loop at {at.place(found.spot, found.loop.lineno)}"
    if found.name == found.grown:
        return f"{capital(loop)} makes `{found.name}` greater in each round"
    return f"`{found.name}` is `{found.grown}`, which {loop} makes greater in each round"


def _grown_number(at: FailingLine) -> GrownNumber | None:
    if at.kind not in _KINDS or not _MESSAGE.search(at.message) or at.node is None:
        return None
    found = [item for name in at.names if "." not in name and (item := _followed(at, name)) is not None]
    return found[0] if len({item.grown for item in found}) == 1 else None


def _followed(at: FailingLine, name: str) -> GrownNumber | None:
    """Through the functions that pass it on as it is, to the loop that runs."""
    spot, inner = at.slice.spot(0), name
    while spot is not None and is_parameter(spot.scope, inner) and not lines_that_bind(spot.scope, inner):
        step = at.slice.argument(inner, spot)
        passed = variable(step[0]) if step is not None else None
        if step is None or passed is None or step[1].depth is None:
            return None
        inner, spot = passed, step[1]
    if spot is None:
        return None
    loops = [item for item in own_nodes(spot.scope) if isinstance(item, ast.While) and spans(item, spot.line)]
    for loop in sorted(loops, key=lambda item: -item.lineno):
        line = _growing_line(loop, inner)
        if line is not None and inner in names_in(loop.test):
            return GrownNumber(name, inner, spot, loop, line)
    return None


def _growing_line(loop: ast.While, name: str) -> int | None:
    """`high *= 2`, `high = low + step` where `step` or `low` grows, too."""
    inside = [item for item in nodes_of(loop) if spans_body(loop.body, getattr(item, "lineno", 0))]
    grows = {
        target: item.lineno
        for item in inside
        if isinstance(item, ast.AugAssign) and isinstance(item.op, _GROWS)
        if (target := variable(item.target)) is not None
    }
    if name in grows:
        return grows[name]
    for item in inside:
        if isinstance(item, ast.Assign) and any(variable(target) == name for target in item.targets):
            added = isinstance(item.value, ast.BinOp) and isinstance(item.value.op, _GROWS)
            if added and not {name, *grows}.isdisjoint(names_in(item.value)):
                return item.lineno
    return None
