"""A size that counts the different values of an index: ids that are no numbers from 0 on lead beyond it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import elements, names_of, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_COUNTS = frozenset({"unique", "unique_consecutive", "nunique", "set"})


def counted_ids(back: Slice, size: str, indices: str, spot: Spot) -> tuple[str, int] | None:
    """`items` of `len(torch.unique(items))`, and that line; the last of those that the indices are made of."""
    own = names_of(ast.parse(indices, mode="eval"))
    expression = ast.parse(size, mode="eval").body
    parts = elements(expression)
    found = [(name, line) for part in parts for name, line in _counted(back, part, spot) if name in own]
    return found[-1] if found else None


def _counted(back: Slice, node: ast.expr, spot: Spot) -> Iterator[tuple[str, int]]:
    made = back.made(node, spot, calls=False)
    for item in nodes_of(made.node):
        if not isinstance(item, ast.Call) or called_name(item) not in _COUNTS:
            continue
        of = item.args[0] if item.args else item.func.value if isinstance(item.func, ast.Attribute) else None
        while isinstance(of, ast.Call) and isinstance(of.func, ast.Attribute) and not of.args:
            of = of.func.value  # `set(items.tolist())`
        name = variable(of) if of is not None else None
        again = any(made.line < line <= spot.line for line, _, _ in bindings_of(spot.scope, name or ""))
        if name is not None and made.spot.scope is spot.scope and not again:
            yield name, made.line
