"""A slice that is kept of what a round makes: a view, which shares the memory of the whole."""

from __future__ import annotations

import ast
from collections.abc import Collection

from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of


def only_slice(node: ast.AST, names: Collection[str]) -> str | None:
    """`scores[:, :1]`, where a line keeps only that of these variables."""
    nodes = [*nodes_of(node)]
    sliced = [
        item
        for item in nodes
        if isinstance(item, ast.Subscript)
        and variable(item.value) in names
        and any(isinstance(part, ast.Slice) for part in (item.slice, *getattr(item.slice, "elts", ())))
    ]
    uses = [item for item in nodes if isinstance(item, ast.Name) and item.id in names]
    return ast.unparse(sliced[0]) if len(sliced) == len(uses) == 1 else None
