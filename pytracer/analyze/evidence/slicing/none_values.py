"""The line of a program that makes a variable or an attribute None, and the call that chose that.

Other lines may set it as well: this is the line that makes None, for a variable that held none of the values that the
others make.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.calls import argument_of, method_of
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, default_of, is_parameter, scope_of

_MOST_CLASSES = 4


class NoneLine(msgspec.Struct, frozen=True):
    """`line` makes it None: `node`. `test`: of `a if test else None`; `chosen`: the only call that chooses None.

    `by_default`: it is a parameter for which nothing was passed.
    """

    line: int
    node: ast.expr
    test: str | None = None
    chosen: ast.Call | None = None
    by_default: bool = False


def none_line(tree: ast.Module, scope: Scope, name: str) -> NoneLine | None:
    """Of `self.x` in the class around the scope, or of a variable of the scope; None unless one line makes None."""
    if name.startswith("self."):
        owner = class_around(tree, scope)
        scopes: list[ast.AST] = [item for item in owner.body if isinstance(item, ast.FunctionDef)] if owner else []
    else:
        scopes = [scope]
    found = [
        line
        for method in scopes
        for number, value, index in bindings_of(method, name)
        if value is not None and index is None and (line := _none(tree, method, number, value)) is not None
    ]
    default = default_of(scope, name) if is_parameter(scope, name) else None
    if is_none(default):
        found.append(NoneLine(default.lineno, default, by_default=True))
    return found[0] if len(found) == 1 else None


def _none(tree: ast.Module, method: ast.AST, line: int, value: ast.AST) -> NoneLine | None:
    if isinstance(value, ast.Constant):
        return NoneLine(line, value) if value.value is None else None
    if not isinstance(value, ast.IfExp) or not isinstance(method, ast.FunctionDef):
        return None
    on_true = is_none(value.body)
    if on_true == is_none(value.orelse):
        return None
    test, wanted = value.test, on_true
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, wanted = test.operand, not wanted
    if not isinstance(test, ast.Name):
        return NoneLine(line, value, ast.unparse(value.test))
    calls = [*_choosing(tree, method, test.id, wanted=wanted)] if method.name == "__init__" else []
    return NoneLine(line, value, ast.unparse(value.test), calls[0] if len(calls) == 1 else None)


def _choosing(
    tree: ast.Module, init: ast.FunctionDef, name: str, *, wanted: bool, depth: int = _MOST_CLASSES
) -> Iterator[ast.Call]:
    """Constructions that pass a constant for a parameter of __init__() that is true or false as wanted.

    Also through the __init__() of classes that pass their own parameter on.
    """
    owner = class_around(tree, init)
    if owner is None or not is_parameter(init, name) or not depth:
        return
    calls = [item for item in nodes_of(tree) if isinstance(item, ast.Call) and called_name(item) == owner.name]
    for call in calls:
        given = argument_of(call, init, name) or default_of(init, name)
        if isinstance(given, ast.Constant) and bool(given.value) == wanted:
            yield call
        outer = scope_of(tree, call.lineno)
        if isinstance(given, ast.Name) and isinstance(outer, ast.FunctionDef) and method_of(owner, ("__init__",)):
            yield from _choosing(tree, outer, given.id, wanted=wanted, depth=depth - 1)
