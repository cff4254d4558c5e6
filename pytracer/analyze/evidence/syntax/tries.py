"""The `try` statements that a line stands in, and what else a program goes on behind after an error."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import TypeGuard

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, spans_body

EXPECTING = ("suppress", "raises")  # of contextlib, and of pytest


def tries_around(scope: Scope, line: int) -> list[ast.Try]:
    """Those of a function whose body has the line, the innermost first."""
    found = [item for item in own_nodes(scope) if isinstance(item, ast.Try) and spans_body(item.body, line)]
    return sorted(found, key=lambda item: -item.lineno)


def hushes(item: ast.AST, by: Collection[str] = ("suppress",)) -> TypeGuard[ast.With | ast.AsyncWith]:
    """Whether it is `with contextlib.suppress(KeyError):`. `by`: names of what ends an error there."""
    given = item.items if isinstance(item, (ast.With, ast.AsyncWith)) else ()
    calls = (part.context_expr for part in given)
    return any(isinstance(call, ast.Call) and called_name(call) in by for call in calls)
