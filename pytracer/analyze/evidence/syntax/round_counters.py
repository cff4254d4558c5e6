"""The variable that has the number of a loop's round."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import Loop
from pytracer.analyze.evidence.syntax.reaching import places_that_bind


def round_counter(loop: Loop) -> ast.Name | None:
    """`epoch` of `range(n)`, `n` of `enumerate(x)`: counted from one number on all ranks, and by no other line."""
    call = None if isinstance(loop, ast.While) else loop.iter
    if not isinstance(call, ast.Call) or isinstance(loop, ast.While) or called_name(call) not in ("range", "enumerate"):
        return None
    target = loop.target
    if called_name(call) == "enumerate":
        target = target.elts[0] if isinstance(target, ast.Tuple) else target
        begins = not call.keywords and len(call.args) == 1
    else:
        begins = len(call.args) == 1 or (len(call.args) == 2 and isinstance(call.args[0], ast.Constant))
    alone = isinstance(target, ast.Name) and not places_that_bind(loop, target.id)
    return target if isinstance(target, ast.Name) and begins and alone else None
