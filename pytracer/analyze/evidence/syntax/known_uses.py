"""Whether the program alone has an object: it is passed to nobody whose code is not at hand."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.scopes import Function, callee_named, function_named, parameters, parents_of

_STARTED = ("Process", "Thread")
_SPAWNS = ("spawn", "start_processes")  # of torch.multiprocessing; the function gets its number first
_ASKS = ("len", "print", "str", "repr", "id", "type", "isinstance", "bool", "iter")
_TESTS = (ast.Compare, ast.UnaryOp, ast.If, ast.While, ast.Expr, ast.FormattedValue)


def is_known_by(tree: ast.Module, names: frozenset[str]) -> bool:
    """Whether each use of an object is one of its own methods, a test, or gives it to a function of `tree`.

    `names`: all that it has there, see `names_of_object`; a use that gives it another one is none of these.
    """
    parents = parents_of(tree)
    bound = {value: target for item in parents for target, value in set_by(item) if value is not None}
    for item in _uses(parents, names):
        if item in bound:
            if last_name(bound[item]) not in names:
                return False
        elif not _is_known(tree, item, parents, names):
            return False
    return True


def _uses(parents: Mapping[ast.AST, ast.AST], names: frozenset[str]) -> Iterator[ast.AST]:
    for item in parents:
        if isinstance(item, (ast.Name, ast.Attribute)) and isinstance(item.ctx, ast.Load) and last_name(item) in names:
            yield item


def _is_known(tree: ast.Module, item: ast.AST, parents: Mapping[ast.AST, ast.AST], names: frozenset[str]) -> bool:
    around = parents[item]
    if isinstance(around, (ast.Attribute, *_TESTS)) or (isinstance(around, ast.Call) and around.func is item):
        return True
    if isinstance(around, (ast.Tuple, ast.List)):  # Process(target=work, args=(games,))
        call = parents[around]
        call = parents[call] if isinstance(call, ast.keyword) else call
        started = _started(tree, call) if isinstance(call, ast.Call) else None
        first = isinstance(call, ast.Call) and called_name(call) in _SPAWNS
        return started is not None and _at(started, around.elts, item, int(first)) in names
    call = parents[around] if isinstance(around, ast.keyword) else around
    if not isinstance(call, ast.Call):
        return False
    function = callee_named(tree, called_name(call) or "")
    if function is None:
        return called_name(call) in _ASKS
    given = around.arg if isinstance(around, ast.keyword) else _at(function, call.args, item, 0)
    return given in names and given in parameters(function)


def _at(function: Function, values: list[ast.expr], item: ast.AST, first: int) -> str | None:
    """The parameter that it is given as; None for one of `*rest`."""
    if any(isinstance(value, ast.Starred) for value in values):
        return None
    taken = [word for word in parameters(function) if word not in ("self", "cls")][first:]
    return next((word for word, value in zip(taken, values, strict=False) if value is item), None)


def _started(tree: ast.Module, call: ast.Call) -> Function | None:
    """The function of the program that a call starts elsewhere."""
    name = called_name(call) or ""
    target = call.args[0] if name in _SPAWNS and call.args else None
    target = keyword_value(call, "target") if name.endswith(_STARTED) else target
    return function_named(tree, last_name(target) or "") if target is not None else None
