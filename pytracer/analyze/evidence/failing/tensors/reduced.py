"""An operand that lost a dimension by a mean or a sum: keepdim=True, where that makes both sides fit."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.failing.expressions import source, whole
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import Shape
from pytracer.analyze.evidence.failing.tensors.result_shapes import broadcast
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_REDUCES = frozenset({"mean", "sum", "std", "var", "norm", "amax", "amin", "prod", "logsumexp", "any", "all"})
_LIBRARIES = ("torch", "np", "numpy")


def reduced_operand(at: FailingLine) -> str | None:
    """`x - x.mean(-1)` of a matrix: its rows' means are one for each row, and broadcast as if one for each column."""
    for item in nodes_of(at.node) if at.node is not None else ():
        if not isinstance(item, ast.BinOp):
            continue
        for side, other in ((item.left, item.right), (item.right, item.left)):
            found = _reduced(at, side, other)
            if found is not None:
                return found
    return None


def _reduced(at: FailingLine, side: ast.expr, other: ast.expr) -> str | None:
    made = None if isinstance(side, ast.Call) else at.made(side, calls=False)
    call = side if made is None else made.node
    spot = at.slice.spot(0)
    if not isinstance(call, ast.Call) or called_name(call) not in _REDUCES or not isinstance(call.func, ast.Attribute):
        return None
    if (made is not None and (spot is None or made.spot.scope is not spot.scope)) or keyword_value(call, "keepdim"):
        return None
    of_library = source(call.func.value) in _LIBRARIES
    base = (call.args[0] if call.args else None) if of_library else call.func.value
    given = argument_at(call, 1 if of_library else 0, "dim", "axis")
    shape, against, place = at.shape(base), at.shape(other), whole(given) if given is not None else None
    if base is None or shape is None or against is None or place is None:
        return None
    if not -len(shape.sizes) <= place < len(shape.sizes) or len(against.sizes) != len(shape.sizes):
        return None
    number = place % len(shape.sizes)
    less = Shape((*shape.sizes[:number], *shape.sizes[number + 1 :]), shape.dtype)
    kept = Shape((*shape.sizes[:number], 1, *shape.sizes[number + 1 :]), shape.dtype)
    if broadcast(shape, against) is None or broadcast(less, against) is not None or broadcast(kept, against) is None:
        return None
    where = f" ({at.shown(made)})" if made is not None else ""
    return (
        f"`{source(side)}`{where} of `{source(base)}` {shape.words} has lost dimension {place} and is "
        f"{less.words}, which does not fit `{source(other)}` {against.words}, as broadcasting aligns "
        "the last dimensions. Pass keepdim=True there, which leaves a 1 in its place."
    )
