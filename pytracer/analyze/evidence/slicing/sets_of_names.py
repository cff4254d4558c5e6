"""Sets whose elements are names of parameters or modules, or other strings: these another run can sort alike."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import holds, variable
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes

_DEEPEST = 4
_NAMED = frozenset({"named_parameters", "named_modules", "named_buffers", "named_children"})
_SETS = frozenset({"set", "frozenset", "list", "tuple", "sorted"})
_ADDS = frozenset({"add", "append"})
_FILLS = frozenset({"update", "extend"})
_KEEPS = frozenset({"discard", "remove", "clear", "copy", "intersection_update", "difference_update"})
_COMPREHENSIONS = (ast.SetComp, ast.ListComp, ast.GeneratorExp)


def are_names(made: Made, read: tuple[ast.expr, Spot]) -> bool:
    """Whether all that makes or fills a set shows it.

    Args:
        made: The expression that makes it.
        read: The variable that is listed, and where.
    """
    way = [*made.through, read, (made.node, made.spot)]
    passed = {id(node) for node, _ in way}
    variables = {(id(spot.scope), name): spot.scope for node, spot in way if (name := variable(node)) is not None}
    if any(name.startswith("self.") for _, name in variables):
        return False  # any method may fill it
    held = all(_holds_names(scope, name, passed, _DEEPEST) for (_, name), scope in variables.items())
    return held and (variable(made.node) is not None or _is_of_names(made.node, made.spot.scope, _DEEPEST))


def _holds_names(scope: Scope, name: str, passed: set[int], depth: int) -> bool:
    """Whether each line that binds, changes or fills a variable puts names there. `passed`: values known otherwise."""
    bound = [(value, index) for _, value, index in bindings_of(scope, name) if value is not None]
    values = [value for value, index in bound if index is None]
    if len(values) < len(bound) or not all(id(item) in passed or _is_of_names(item, scope, depth) for item in values):
        return False
    changes = [item for item in own_nodes(scope) if isinstance(item, ast.AugAssign) and variable(item.target) == name]
    added = (item.value for item in changes if not isinstance(item.op, (ast.Sub, ast.BitAnd)))
    calls = (
        (item, item.func.attr)
        for item in own_nodes(scope)
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and variable(item.func.value) == name
    )
    return all(_is_of_names(item, scope, depth) for item in added) and all(
        _puts_names(item, method, scope, depth) for item, method in calls
    )


def _puts_names(call: ast.Call, method: str, scope: Scope, depth: int) -> bool:
    if method in _ADDS:
        return all(_is_name(item, _loops(scope)) for item in call.args)
    if method in _FILLS:
        return all(_is_of_names(item, scope, depth) for item in call.args)
    return method in _KEEPS


def _is_of_names(node: ast.AST, scope: Scope, depth: int) -> bool:
    """Whether it is a set or list of names, as it is written."""
    if depth == 0:
        return False
    if isinstance(node, (ast.Set, ast.List, ast.Tuple)):
        return all(_is_name(item, _loops(scope)) for item in node.elts)
    if isinstance(node, _COMPREHENSIONS):
        return _is_name(node.elt, [*node.generators, *_loops(scope)])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _SETS:
        return all(_is_of_names(item, scope, depth - 1) for item in node.args)
    if isinstance(node, ast.BinOp):
        left = _is_of_names(node.left, scope, depth - 1)
        return left and (isinstance(node.op, ast.Sub) or _is_of_names(node.right, scope, depth - 1))
    name = variable(node)
    bound = name is not None and any(value is not None for _, value, _ in bindings_of(scope, name))
    return bound and name is not None and _holds_names(scope, name, set(), depth - 1)


def _loops(scope: Scope) -> list[ast.For]:
    return [item for item in own_nodes(scope) if isinstance(item, ast.For)]


def _is_name(node: ast.expr, loops: Sequence[ast.For | ast.comprehension]) -> bool:
    """A string, or `n` of `for n, p in model.named_parameters()`."""
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _is_name(node.left, loops) or _is_name(node.right, loops)
    name = variable(node)
    binding = [item for item in loops if name is not None and holds(item.target, name)]
    own = [item for item in binding if isinstance(item, ast.comprehension)]
    given = own or binding
    return bool(given) and all(
        isinstance(item.iter, ast.Call) and called_name(item.iter) in _NAMED
        and isinstance(item.target, ast.Tuple) and variable(item.target.elts[0]) == name
        for item in given
    )  # fmt: skip
