"""How the path that an expression makes ends, as far as the source has it: `slide + "_preview.npy"`."""

from __future__ import annotations

import ast
import os

from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, parameters, scope_of

_HOPS = 4
_LAST = ("join", "joinpath", "Path", "PurePath", "str", "fspath", "abspath", "realpath", "expanduser", "with_suffix")
ADDED_BY_NUMPY = {
    "save": ".npy",
    "savez": ".npz",
    "savez_compressed": ".npz",
}  # to another name
_NUMPY = ("np", "numpy")


def path_end(tree: ast.Module, line: int, node: ast.AST, hops: int = _HOPS) -> str | None:
    """The constant text at the end; None where a variable of unknown text is there.

    Args:
        tree: The module.
        line: That has the expression.
        node: The expression.
        hops: How many variables it may be followed through.
    """
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        last = node.values[-1] if node.values else None
        return path_end(tree, line, last, hops) if isinstance(last, ast.Constant) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Div)):
        return path_end(tree, line, node.right, hops)
    if isinstance(node, ast.Call) and called_name(node) in _LAST and node.args and not node.keywords:
        return path_end(tree, line, node.args[-1], hops)
    name = variable(node)
    value = _only_value(tree, line, name) if name is not None and hops else None
    return path_end(tree, value.lineno, value, hops - 1) if value is not None else None


def may_be(tree: ast.Module, call: ast.Call, given: ast.AST, path: str) -> bool:
    """Whether a call that is given a path may mean this file: its name ends as the path does."""
    end = path_end(tree, call.lineno, given)
    if end is None:
        return True
    added = added_by(call)
    name = os.path.basename(end) if "/" in end else end
    return path.endswith(name if name.endswith(added) else name + added)


def added_by(call: ast.Call) -> str:
    """What NumPy adds to a name that does not end so; empty for other calls."""
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else None
    return ADDED_BY_NUMPY.get(called_name(call) or "", "") if owner in _NUMPY else ""


def _only_value(tree: ast.Module, line: int, name: str) -> ast.expr | None:
    scope = scope_of(tree, line)
    if name in parameters(scope):
        return None
    owner = class_around(tree, scope) if name.startswith("self.") else None
    for place in (owner if owner is not None else scope, tree):
        nodes = nodes_of(place) if isinstance(place, ast.ClassDef) else own_nodes(place)
        values = [value for item in nodes for to, value in set_by(item) if variable(to) == name]
        if values:
            return values[0] if len(values) == 1 else None
    return None
