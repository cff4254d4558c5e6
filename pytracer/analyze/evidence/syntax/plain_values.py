"""Values in which there is no tensor: numbers, strings, None, arrays, and containers of these."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, all_parameters, own_nodes

_BUILT_IN = frozenset({"int", "float", "str", "bool", "len", "repr", "bytes", "range"})
_METHODS = frozenset({"item", "tolist", "numpy", "getpid", "perf_counter", "monotonic", "format", "format_exc"})
_DEEPEST = 4


def is_plain_value(node: ast.AST, scope: Scope, given: Mapping[str, bool], depth: int = _DEEPEST) -> bool:
    """Whether an expression is such a value; False where that is not known.

    Args:
        node: The expression.
        scope: The function that it is in.
        given: Of the parameters of the function, whether what it was given is one.
        depth: How many variables are followed.
    """

    def plain(part: ast.AST | None) -> bool:
        return part is None or is_plain_value(part, scope, given, depth)

    if isinstance(node, (ast.Constant, ast.JoinedStr)):
        return True
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return all(plain(item) for item in node.elts)
    if isinstance(node, ast.Dict):
        return all(plain(item) for item in (*filter(None, node.keys), *node.values))
    if isinstance(node, (ast.BinOp, ast.Compare, ast.UnaryOp, ast.BoolOp)):
        return all(plain(item) for item in ast.iter_child_nodes(node) if isinstance(item, ast.expr))
    if isinstance(node, ast.IfExp):
        return plain(node.body) and plain(node.orelse)
    if isinstance(node, ast.Call):
        called = called_name(node)
        return called in (_BUILT_IN if isinstance(node.func, ast.Name) else _METHODS) or _is_time(node)
    return isinstance(node, ast.Name) and depth > 0 and _is_plain_name(node.id, scope, given, depth - 1)


def _is_time(call: ast.Call) -> bool:
    return ast.unparse(call.func) == "time.time"


def _is_plain_name(name: str, scope: Scope, given: Mapping[str, bool], depth: int) -> bool:
    """Whether all that binds a variable of a function makes it such a value."""
    values, own = _bound(scope, name), name in all_parameters(scope)
    if own and not given.get(name, False):
        return False
    return (own or bool(values)) and all(
        not _may_be_filled(item) and is_plain_value(item, scope, given, depth) if isinstance(item, ast.AST) else item
        for item in values
    )


def _may_be_filled(value: ast.AST) -> bool:
    """A container to which a later line may add something."""
    return any(isinstance(item, (ast.List, ast.Set, ast.Dict)) for item in nodes_of(value))


def _bound(scope: Scope, name: str) -> list[ast.AST | bool]:
    """The values that a variable is bound to; of a loop whether it counts; False of any other way."""
    found: list[ast.AST | bool] = []
    for node in own_nodes(scope):
        if isinstance(node, ast.Assign):
            plain = (item for item in node.targets if isinstance(item, ast.Name) and item.id == name)
            found += [node.value for _ in plain]
            found += [False for item in node.targets if not isinstance(item, ast.Name) and _stores(item, name)]
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and _stores(node.target, name):
            found += [node.value] if node.value is not None else []
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)) and _stores(node.target, name):
            found.append(_counts(node, name))
        elif isinstance(node, ast.withitem) and node.optional_vars is not None and _stores(node.optional_vars, name):
            found.append(False)
    return found


def _stores(target: ast.AST, name: str) -> bool:
    return any(
        isinstance(item, ast.Name) and item.id == name and isinstance(item.ctx, ast.Store) for item in nodes_of(target)
    )


def _counts(loop: ast.For | ast.AsyncFor | ast.comprehension, name: str) -> bool:
    """`for name in range(n)`, `for name, batch in enumerate(loader)`."""
    called = called_name(loop.iter) if isinstance(loop.iter, ast.Call) else None
    if called == "range":
        return isinstance(loop.target, ast.Name)
    first = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) and loop.target.elts else None
    return called == "enumerate" and isinstance(first, ast.Name) and first.id == name
