"""A slice that is kept of what a round makes: a view, which shares the memory of the whole."""

from __future__ import annotations

import ast
from collections.abc import Collection

from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_MOVES = ("cpu", "to", "cuda", "float", "half", "bfloat16")


def only_slice(node: ast.AST, names: Collection[str]) -> str | None:
    """`scores[:, :1]`, where a line keeps only that of these variables.

    An index of a variable may be a tensor, and cpu() may move: these copy.
    """
    nodes = [*nodes_of(node)]
    moves = [item.value for item in nodes if isinstance(item, ast.Attribute) and item.attr in _MOVES]
    moved = {id(part) for item in moves for part in nodes_of(item)}
    sliced = [
        item
        for item in nodes
        if isinstance(item, ast.Subscript)
        and variable(item.value) in names
        and id(item) not in moved
        and any(isinstance(part, ast.Slice) for part in _parts(item))
        and all(isinstance(part, (ast.Slice, ast.Constant, ast.UnaryOp)) for part in _parts(item))
    ]
    uses = [item for item in nodes if isinstance(item, ast.Name) and item.id in names]
    return ast.unparse(sliced[0]) if len(sliced) == len(uses) == 1 else None


def _parts(item: ast.Subscript) -> list[ast.expr]:
    """Of the index, one for each dimension."""
    return item.slice.elts if isinstance(item.slice, ast.Tuple) else [item.slice]
