"""Where a function returns None: by a `return` without a value, or at its end."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

Named = ast.FunctionDef | ast.AsyncFunctionDef


def returns_none_at(function: Named) -> tuple[int, bool] | None:
    """The line, and whether it is that of a `return`; None where each way ends with a value, and of a generator."""
    nodes = [*own_nodes(function)]
    if any(isinstance(item, (ast.Yield, ast.YieldFrom)) for item in nodes):
        return None
    returns = [item for item in nodes if isinstance(item, ast.Return)]
    nothing = [item.lineno for item in returns if item.value is None or is_none(item.value)]
    if nothing:
        return nothing[0], True
    return (function.end_lineno or function.lineno, False) if _goes_on(function.body) else None


def ends_without_return(function: Named) -> bool:
    """Whether its end may be reached."""
    return _goes_on(function.body)


def _goes_on(body: Sequence[ast.stmt]) -> bool:
    """Whether what follows the statements may be reached."""
    last = body[-1]
    if isinstance(last, (ast.Return, ast.Raise, ast.Continue)):
        return False
    if isinstance(last, ast.If):
        return not last.orelse or _goes_on(last.body) or _goes_on(last.orelse)
    if isinstance(last, (ast.With, ast.AsyncWith)):
        return _goes_on(last.body)
    if isinstance(last, ast.Try):
        return _goes_on(last.orelse or last.body) or any(_goes_on(item.body) for item in last.handlers)
    if isinstance(last, ast.While) and isinstance(last.test, ast.Constant) and last.test.value:
        return any(isinstance(item, ast.Break) for item in nodes_of(last))
    return True
