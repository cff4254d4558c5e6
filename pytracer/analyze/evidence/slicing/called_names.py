"""What statements of a program call, and what the program's functions among these call, by the names alone."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import definitions

_MOST = 64  # functions that are followed


def called_names(files: Mapping[str, ast.Module], nodes: Iterable[ast.AST]) -> tuple[set[str], bool]:
    """The names, and whether all was followed: no name of several functions, and no end of patience.

    Args:
        files: Of the program, by path.
        nodes: Where to begin.
    """
    found: set[str] = set()
    waiting, is_whole = [*nodes], True
    for _ in range(_MOST):
        if not waiting:
            break
        for call in (item for item in nodes_of(waiting.pop(0)) if isinstance(item, ast.Call)):
            name = called_name(call) or ""
            if name in found:
                continue
            found.add(name)
            own = [item for tree in files.values() for item in definitions(tree).get(name, ())]
            is_whole = is_whole and len(own) < 2
            waiting += own if len(own) == 1 and not isinstance(own[0], ast.ClassDef) else []
    return found, is_whole and not waiting
