"""BatchNorm in training with one row, of a batch that has more: no last batch is why, but what selects the row."""

from __future__ import annotations

import ast

import msgspec

from pytracer.analyze.evidence.failing.data.loaders import ONE_VALUE, batch_given
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import Shape, shape_of
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import bound_value
from pytracer.analyze.evidence.syntax.calls import passed_values
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_FEATURES = 2  # dimensions: rows and channels
_WAY = (
    "Leave at least two there or skip a step with one, or use a norm that needs no batch (LayerNorm, GroupNorm); "
    "drop_last=True does not help."
)


class _Selection(msgspec.Struct, frozen=True):
    """`feats[hard]`, with the value that selects, and the place."""

    node: ast.Subscript
    index: str
    shape: Shape
    of: Shape
    place: str


def one_row_of_several(at: FailingLine) -> str | None:
    """Of a batch whose size the loop around it has."""
    if ONE_VALUE.search(at.message) is None:
        return None
    given = batch_given(at)
    if given is None or given.size <= 1:
        return None
    layer = f"`{at.layer.name}` ({at.layer.kind})" if at.layer is not None else "BatchNorm"
    several = f"`{given.loader}` gave {given.size} samples (`{given.name}`)"
    found = [item for depth in range(given.depth + 1) for item in _selections(at, depth)]
    if len(found) != 1:
        return (
            f"{layer} got one value per channel, though {several}: look at where its one row comes from (a selection, "
            f"a mean over the batch, a tensor made for one sample). {_WAY}"
        )
    one = found[0]
    return (
        f"`{source(one.node)}` at {one.place} leaves one row of {one.of.sizes[0]} (`{one.index}` is "
        f"{one.shape.words}), which is one value per channel for {layer}; {several}. {_WAY}"
    )


def _selections(at: FailingLine, depth: int) -> list[_Selection]:
    """Of what the line of a frame passes on, where an index of one element takes a row of several."""
    spot = at.slice.spot(depth)
    if spot is None:
        return []
    values, found = at.values_at(depth), []
    for call in own_nodes(spot.scope):
        if not isinstance(call, ast.Call) or not call.lineno <= spot.line <= (call.end_lineno or 0):
            continue
        for value in passed_values(call):
            node, line = _as_subscript(value, spot)
            if node is None or not isinstance(node.slice, ast.Name):
                continue
            of, index = shape_of(values.get(ast.unparse(node.value))), shape_of(values.get(node.slice.id))
            if of is None or index is None or len(of.sizes) < _FEATURES or of.sizes[0] <= 1:
                continue  # `y[hard]` has no values for channels
            if tuple(index.sizes) != (1,):
                continue
            found.append(_Selection(node, node.slice.id, index, of, at.place(spot, line)))
    return [*{ast.unparse(item.node): item for item in found}.values()]


def _as_subscript(value: ast.expr, spot: Spot) -> tuple[ast.Subscript | None, int]:
    """Itself, or what the variable was set to above."""
    if isinstance(value, ast.Name):
        bound = bound_value(spot.scope, value.id, spot.line)
        if bound is not None and isinstance(bound[1], ast.Subscript) and bound[0] < spot.line:
            return bound[1], bound[0]
    return (value, value.lineno) if isinstance(value, ast.Subscript) else (None, 0)
