"""The `try` statements that a line stands in."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, spans_body


def tries_around(scope: Scope, line: int) -> list[ast.Try]:
    """Those of a function whose body has the line, the innermost first."""
    found = [item for item in own_nodes(scope) if isinstance(item, ast.Try) and spans_body(item.body, line)]
    return sorted(found, key=lambda item: -item.lineno)
