"""What names of a file stand for, by its imports."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.syntax.nodes import nodes_of


def imported_names(tree: ast.Module) -> dict[str, str]:
    """`F` is `torch.nn.functional`, `cycle` of `from itertools import cycle` is `itertools.cycle`."""
    found: dict[str, str] = {}
    for item in nodes_of(tree):
        if isinstance(item, ast.Import):
            for part in item.names:
                found[part.asname or part.name.partition(".")[0]] = (
                    part.name if part.asname else part.name.partition(".")[0]
                )
        elif isinstance(item, ast.ImportFrom) and item.level == 0 and item.module:
            found |= {part.asname or part.name: f"{item.module}.{part.name}" for part in item.names}
    return found


def imported_as(tree: ast.Module, node: ast.AST) -> str | None:
    """`torch.multiprocessing.Pool` of `mp.Pool`; None of what no import names."""
    inner: list[str] = []
    while isinstance(node, ast.Attribute):
        inner.insert(0, node.attr)
        node = node.value
    origin = imported_names(tree).get(node.id) if isinstance(node, ast.Name) else None
    return ".".join([origin, *inner]) if origin is not None else None
