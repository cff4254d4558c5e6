"""Conditions about workers: whether they still run, or whether one has asked all to stop. No value of them is wrong."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_CALLS = frozenset({"is_alive", "is_set", "is_running"})
_STATUS = frozenset({"exitcode"})


def asks_for_worker(test: ast.AST) -> bool:
    """`not worker.is_alive()`, `stop.is_set()`, `any(p.exitcode for p in workers)`."""
    return any(
        (isinstance(item, ast.Call) and called_name(item) in _CALLS)
        or (isinstance(item, ast.Attribute) and item.attr in _STATUS)
        for item in nodes_of(test)
    )
