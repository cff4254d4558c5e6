"""What the variables of a condition were on two ranks, of which one left a loop by it."""

from __future__ import annotations

import ast

from pytracer.analyze.collectives.rank_values import Compared, variables_in
from pytracer.analyze.collectives.ways import Side
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.loops import Loop

_MOST = 2


def tested_words(inside: Side, outside: Side, at: int, loop: Loop, test: ast.expr) -> str:
    """`: `patience` is 5 on rank 1 and 2 on rank 0`; nothing where that is not recorded, or may have changed since.

    Args:
        inside: The rank that is still in the loop.
        outside: The one that has left it.
        at: Which frame of their ways, the outermost first, has the loop.
        loop: The loop.
        test: The condition.
    """
    compared = Compared(inside.view, inside.call, outside.view, outside.call)
    spot = compared.slice.spot(len(inside.way) - 1 - at)
    if spot is None:
        return ""
    found = dict[str, str]()
    for item in variables_in(test):
        name = ast.unparse(item)
        if not isinstance(item, ast.Name) or _is_set_behind(spot.scope, name, loop):
            continue
        pair = compared.pair(item, spot)
        if pair is not None and pair[0] != pair[1]:
            found[name] = f"`{name}` is {pair[1]} on {outside.name} and {pair[0]} on {inside.name}"
    return f": {' and '.join(found.values())}" if 0 < len(found) <= _MOST else ""


def _is_set_behind(scope: ast.AST, name: str, loop: Loop) -> bool:
    """Whether a line below the loop binds the name again."""
    return any(line > (loop.end_lineno or 0) for line, _ in lines_that_bind(scope, name))
