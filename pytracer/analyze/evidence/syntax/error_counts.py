"""Variables that count the errors a handler catches: nothing else changes them, and they begin at 0."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

import msgspec

from pytracer.analyze.evidence.syntax.bindings import set_by, set_from_outside
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import all_parameters, class_around, own_nodes, scope_of


class ErrorCount(msgspec.Struct, frozen=True):
    """`name`: `skipped`, `self.skipped`, `stats['skipped']`; `line`: that counts.

    `alone`: an attribute that no other class of the file sets. `whole`: whether it counts each error, and is never set
    back to 0 in a loop, nor by a method that is not __init__: 0 is none, then.
    """

    name: str
    line: int
    alone: bool = False
    whole: bool = False


def error_counts(tree: ast.Module, handler: ast.ExceptHandler) -> Iterator[ErrorCount]:
    """Those that a handler counts up, and no other line but handlers."""
    scope = scope_of(tree, handler.lineno)
    for item in own_nodes(handler):
        if not isinstance(item, ast.AugAssign) or not isinstance(item.op, ast.Add) or not _is_count(item.value):
            continue
        root = item.target.value if isinstance(item.target, ast.Subscript) else item.target
        name = variable(root)
        if name is None or name in all_parameters(scope):
            continue
        owner = class_around(tree, scope) if name.startswith("self.") else None
        if name.startswith("self.") and (owner is None or set_from_outside(tree, owner, name.removeprefix("self."))):
            continue
        nodes = [*nodes_of(owner)] if owner is not None else [*own_nodes(scope)]
        if _begins_at_zero(nodes, name, item.target) and _counts_errors_alone(nodes, ast.unparse(item.target)):
            alone = owner is not None and _is_alone(tree, owner, name)
            whole = item in handler.body and not _is_set_back(tree, nodes, name)
            yield ErrorCount(ast.unparse(item.target), item.lineno, alone, whole)


def _is_count(value: ast.AST | None) -> bool:
    return isinstance(value, ast.Constant) and type(value.value) is int and value.value > 0


def _is_zero(value: ast.AST | None) -> bool:
    return isinstance(value, ast.Constant) and type(value.value) is int and value.value == 0


def _begins_at_zero(nodes: Iterable[ast.AST], name: str, target: ast.expr) -> bool:
    """Whether all that sets it sets it to 0; of an item of a dict, a dict of that and other numbers."""
    values = [value for node in nodes for to, value in set_by(node) if _is_or_holds(to, name)]
    if not isinstance(target, ast.Subscript):
        return bool(values) and all(_is_zero(value) for value in values)
    return bool(values) and all(_has_zero(value, target.slice) for value in values)


def _is_or_holds(target: ast.expr, name: str) -> bool:
    """`x`, `x[...]`, and `x` among the targets of a loop or of `a, x = f()`, whose values are not known."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return any(_is_or_holds(item, name) for item in target.elts)
    inner = target.value if isinstance(target, ast.Starred) else target
    return variable(inner) == name


def _is_set_back(tree: ast.Module, nodes: Iterable[ast.AST], name: str) -> bool:
    lines = [to.lineno for node in nodes for to, _ in set_by(node) if _is_or_holds(to, name)]
    scopes = [scope_of(tree, line) for line in lines]
    later = name.startswith("self.") and any(getattr(scope, "name", "") != "__init__" for scope in scopes)
    return later or any(loops_around(tree, line) for line in lines)


def _has_zero(value: ast.AST | None, key: ast.expr) -> bool:
    if not isinstance(value, ast.Dict):
        return False
    wanted = ast.unparse(key)
    return any(
        item is not None and ast.unparse(item) == wanted and _is_zero(number)
        for item, number in zip(value.keys, value.values, strict=True)
    )


def _counts_errors_alone(nodes: list[ast.AST], name: str) -> bool:
    """Whether all lines that change it in place are in handlers."""
    caught = {id(part) for item in nodes if isinstance(item, ast.ExceptHandler) for part in nodes_of(item)}
    changes = [item for item in nodes if isinstance(item, ast.AugAssign) and ast.unparse(item.target) == name]
    stores = [
        item
        for node in nodes
        for item, _ in set_by(node)
        if isinstance(item, ast.Subscript) and ast.unparse(item) == name
    ]
    outer = any(isinstance(item, (ast.Global, ast.Nonlocal)) and name in item.names for item in nodes)
    return not stores and not outer and all(id(item) in caught for item in changes)


def _is_alone(tree: ast.Module, owner: ast.ClassDef, name: str) -> bool:
    own = {id(item) for item in nodes_of(owner)}
    nodes = (item for item in nodes_of(tree) if id(item) not in own)
    return not any(variable(target) == name for node in nodes for target, _ in set_by(node))
