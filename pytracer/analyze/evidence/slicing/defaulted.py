"""What stands in for a parameter that nobody passes: `rng or make()`, `make() if rng is None else rng`, `if not rng:`.

A slice ends there, as the value is one of two; where what was passed is None, it is the other.
"""

from __future__ import annotations

import ast

from msgspec import structs

from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import parameters

_BOTH = 2


def defaulted(slice_: Slice, made: Made, *, calls: bool = True) -> Made:
    """Beyond such a choice; as it was where there is none, or where something may have been passed.

    `calls`: also through what functions of the program return.
    """
    node, spot = made.node, made.spot
    chosen: tuple[ast.AST, Spot] | None = None
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) and len(node.values) == _BOTH:
        chosen = (node.values[1], spot) if _is_none(slice_, node.values[0], spot) else None
    elif isinstance(node, ast.IfExp):
        asks = _asks_for_none(node.test)
        if asks is not None and _is_none(slice_, asks[0], spot):
            chosen = (node.body if asks[1] else node.orelse, spot)
    elif isinstance(node, ast.Name):
        chosen = _set_below(slice_, node, spot)
    if chosen is None:
        return made
    further = slice_.made(*chosen, calls=calls)
    return Made(further.node, further.spot, (*made.through, (node, spot), *further.through))


def _is_none(slice_: Slice, node: ast.AST, spot: Spot) -> bool:
    return is_none(slice_.made(node, spot, calls=True).node)


def _asks_for_none(test: ast.expr) -> tuple[ast.expr, bool] | None:
    """`rng` of `rng is None` and `not rng`, with True; of `rng is not None` and `rng` with False."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand, True
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and is_none(test.comparators[0]):
        return test.left, isinstance(test.ops[0], ast.Is)
    return (test, False) if variable(test) is not None else None


def _set_below(slice_: Slice, node: ast.Name, spot: Spot) -> tuple[ast.AST, Spot] | None:
    """Of a parameter that one line sets, below `if rng is None:`."""
    scope = spot.scope
    if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.id not in parameters(scope):
        return None
    bound = [*bindings_of(scope, node.id)]
    line, value, index = bound[0] if len(bound) == 1 else (0, None, None)
    if value is None or index is not None or line >= spot.line:
        return None
    tests = [test.test for test, around in deciding_ifs(spot.tree, line) if around]
    asks = _asks_for_none(tests[0]) if len(tests) == 1 else None
    given = slice_.argument(node.id, spot)
    if asks is None or not asks[1] or variable(asks[0]) != node.id or given is None or not _is_none(slice_, *given):
        return None
    return value, structs.replace(spot, line=line)
