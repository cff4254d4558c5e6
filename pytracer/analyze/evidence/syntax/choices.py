"""Conditions inside of an expression, which decide whether a call of its line runs: `f(x) if x else None`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of, spans

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def choices_around(tree: ast.Module, line: int, name: str) -> list[ast.expr]:
    """The conditions of the only call of a name on a line, in that line's expressions; none where it is not the only.

    Of a choice its test, of `and` and `or` what stands before the call, of a comprehension its `if`.
    """
    on_line = [item for item in nodes_of(scope_of(tree, line)) if isinstance(item, ast.expr) and spans(item, line)]
    calls = [item for item in on_line if isinstance(item, ast.Call) and called_name(item) == name]
    if len(calls) != 1:
        return []
    return [test for item in on_line for test in _tests(item, calls[0])]


def _tests(item: ast.expr, call: ast.Call) -> Iterator[ast.expr]:
    if isinstance(item, ast.IfExp) and (_has(item.body, call) or _has(item.orelse, call)):
        yield item.test
    elif isinstance(item, ast.BoolOp):
        at = next((number for number, value in enumerate(item.values) if _has(value, call)), 0)
        yield from item.values[:at]
    elif isinstance(item, COMPREHENSIONS):
        made = [item.key, item.value] if isinstance(item, ast.DictComp) else [item.elt]
        if any(_has(part, call) for part in made):
            yield from (test for part in item.generators for test in part.ifs)


def _has(item: ast.expr, call: ast.Call) -> bool:
    return any(part is call for part in nodes_of(item))
