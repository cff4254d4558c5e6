"""Lines that set a part of any object, after which the expression that made the object does not give that part."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of


def is_stored(trees: Iterable[ast.Module], key: object) -> bool:
    """Whether a line sets `x.key` or `x["key"]` of any object but `self`, or calls update() for it."""
    return any(_stores(item, key) or _updates(item, key) for tree in trees for item in nodes_of(tree))


def _stores(item: ast.AST, key: object) -> bool:
    if not isinstance(item, (ast.Attribute, ast.Subscript)) or not isinstance(item.ctx, ast.Store):
        return False
    held = item.attr if isinstance(item, ast.Attribute) else getattr(item.slice, "value", None)
    return held == key and variable(item) is None


def _updates(item: ast.AST, key: object) -> bool:
    """`options.update(width=8)`, `options.update({"width": 8})`."""
    if not isinstance(item, ast.Call) or called_name(item) != "update":
        return False
    keys = [part for held in item.args if isinstance(held, ast.Dict) for part in held.keys]
    named = any(isinstance(part, ast.Constant) and part.value == key for part in keys)
    return named or any(part.arg == key for part in item.keywords)
