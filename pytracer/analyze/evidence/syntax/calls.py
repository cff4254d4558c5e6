"""Calls: whom they name, and what they pass."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import Scope, parameters, spans


def passed_as(tree: ast.Module, line: int, scope: Scope, name: str) -> str | None:
    """The caller's own name for a parameter: `step(model, batch)` passes `batch`; None for anything but a name.

    Args:
        tree: The caller's module.
        line: Its line.
        scope: The function that is called.
        name: The parameter.
    """
    if isinstance(scope, (ast.Lambda, ast.Module)):
        return None
    calls = [item for item in ast.walk(tree) if isinstance(item, ast.Call) and spans(item, line)]
    calls = [item for item in calls if called_name(item) == scope.name]
    if len(calls) != 1:
        return None
    value = _argument(calls[0], parameters(scope), name)
    return variable(value) if value is not None else None


def _argument(call: ast.Call, parameters: Sequence[str], name: str) -> ast.expr | None:
    keyword = next((item.value for item in call.keywords if item.arg == name), None)
    if keyword is not None or any(isinstance(item, ast.Starred) for item in call.args):
        return keyword
    bound = parameters[:1] == ["self"] and isinstance(call.func, ast.Attribute)
    position = [*parameters].index(name) - bound
    return call.args[position] if 0 <= position < len(call.args) else None


def called_name(call: ast.Call) -> str | None:
    """`get` of `x.get()` and of `get()`."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None
