"""Calls: whom they name, and what they pass."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, parameters, spans

LIBRARY_LOADERS = ("CDLL", "PyDLL", "LoadLibrary", "load_library", "load_inline", "dlopen")


def calls_on(tree: ast.AST, line: int) -> list[ast.Call]:
    """The calls that a line is part of, the outer ones before those in their arguments."""
    return [item for item in nodes_of(tree) if isinstance(item, ast.Call) and spans(item, line)]


def passed_values(call: ast.Call) -> list[ast.expr]:
    """What a call passes, by place and then by name; of `*rest` and `**options` what is unpacked."""
    return [*call.args, *(item.value for item in call.keywords)]


def keyword_value(call: ast.Call, *names: str) -> ast.expr | None:
    """What a call passes by one of these names; None where it passes nothing so."""
    return next((item.value for item in call.keywords if item.arg in names), None)


def argument_at(call: ast.Call, place: int, *names: str) -> ast.expr | None:
    """What a call passes by one of these names, or else by its place; None where it passes neither."""
    named = keyword_value(call, *names)
    return named if named is not None else call.args[place] if place < len(call.args) else None


def options_passed(tree: ast.AST, line: int, name: str) -> list[str]:
    """What the calls of a line pass for an option: an expression, or `options` of `**options`, which may have it."""
    given = (item for call in calls_on(tree, line) for item in call.keywords)
    return [ast.unparse(item.value) for item in given if item.arg == name or item.arg is None]


def passed_as(tree: ast.Module, line: int, scope: Scope, name: str) -> str | None:
    """The caller's own name for a parameter: `step(model, batch)` passes `batch`; None for anything but a name.

    Args:
        tree: The caller's module.
        line: Its line.
        scope: The function that is called.
        name: The parameter.
    """
    call = _only_call(tree, line, scope)
    value = _argument(call, scope, name) if call is not None else None
    return variable(value) if value is not None else None


def leaves_out(tree: ast.Module, line: int, scope: Scope, name: str) -> bool:
    """Whether the only call on the line passes nothing for a parameter, which then has its default."""
    call = _only_call(tree, line, scope)
    if call is None or any(item.arg is None for item in call.keywords):
        return False
    starred = any(isinstance(item, ast.Starred) for item in call.args)
    return not starred and _argument(call, scope, name) is None


def _only_call(tree: ast.Module, line: int, scope: Scope) -> ast.Call | None:
    """That of a function on a line; None of several."""
    if isinstance(scope, (ast.Lambda, ast.Module)):
        return None
    calls = [item for item in calls_on(tree, line) if called_name(item) == scope.name]
    return calls[0] if len(calls) == 1 else None


def _argument(call: ast.Call, scope: Scope, name: str) -> ast.expr | None:
    keyword = keyword_value(call, name)
    if keyword is not None or any(isinstance(item, ast.Starred) for item in call.args):
        return keyword
    places = parameters(scope)
    position = places.index(name) - (isinstance(call.func, ast.Attribute) and is_bound(call, places, scope))
    return call.args[position] if 0 <= position < len(call.args) else None


def is_bound(call: ast.Call, places: Sequence[str], function: Scope) -> bool:
    """Whether the first parameter is the object or class; `Base.forward(self, x)` passes it.

    Or the context, which `Exchange.apply(x)` of an autograd function makes.
    """
    first = call.args[0] if call.args else None
    more = isinstance(function, ast.Module) or function.args.vararg is not None
    passed = (isinstance(first, ast.Name) and first.id in ("self", "ctx")) or (
        len(call.args) >= len(places) and not more
    )
    return list(places[:1]) in (["self"], ["cls"], ["ctx"]) and not passed


def without_wrappers(node: ast.expr, names: Collection[str]) -> ast.expr:
    """`rows` of `enumerate(tqdm(rows))`: what calls of these names are given first."""
    while isinstance(node, ast.Call) and called_name(node) in names and node.args:
        node = node.args[0]
    return node


def without_ctype(node: ast.expr) -> ast.expr:
    """`n` of `ctypes.c_long(n)`."""
    while isinstance(node, ast.Call) and (called_name(node) or "").startswith("c_") and len(node.args) == 1:
        node = node.args[0]
    return node


def called_name(call: ast.Call) -> str | None:
    """`get` of `x.get()` and of `get()`."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None
