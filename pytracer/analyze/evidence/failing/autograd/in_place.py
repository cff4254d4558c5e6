"""The line that changed in place what backward() still needs."""

from __future__ import annotations

import ast
import re

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_WEIGHT = Pattern(r"output 0 of (?:T|AsStrided|Transpose|Permute|Accumulate)(?:Backward0|Grad)?,")
_OPTIMIZER = Pattern(r"opt|scaler|adam|sgd", re.IGNORECASE)  # no scheduler, profiler or environment
_MOST = 2


def changed_in_place(at: FailingLine) -> str | None:
    """An optimizer's step before this backward(), or statements that change a tensor in place, where they are few."""
    if _WEIGHT.search(at.message):
        steps = [
            item.lineno
            for item in own_nodes(at.scope)
            if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == "step"
            if _OPTIMIZER.search(ast.unparse(item.func.value))
        ]
        before = [line for line in steps if line < at.line]
        if before and not any(_changes_in_place(item) for item in nodes_of(at.tree)):
            return (
                f"The optimizer's step() at line {before[-1]} changes weights that backward() at line {at.line} still "
                "needs: call every backward() before the first step(), or compute this loss after that step."
            )
    found: dict[int, str] = {}
    for item in nodes_of(at.tree):
        if _changes_in_place(item) and isinstance(item, (ast.stmt, ast.expr)):
            found[item.lineno] = source(item)
    lines = [f"{at.here(number)} (`{found[number]}`)" for number in sorted(found)]
    if not lines or len(lines) > _MOST:
        return None
    only = "is the only line that seems to change a tensor in place" if len(lines) == 1 else "seem to change one"
    return (
        f"In this file {' and '.join(lines)} {only}, and backward() still needs what was there: write it so that it "
        "makes a new one (`x = x + y`, `x.relu()`, torch.where, clone() before)."
    )


def _changes_in_place(item: ast.AST) -> bool:
    """`names["a"] = 1` is a dict's."""
    if isinstance(item, ast.AugAssign):
        return _is_tensor_like(item)
    if isinstance(item, ast.Call):
        return isinstance(item.func, ast.Attribute) and _is_in_place(item.func.attr)
    held = [
        target for target in (item.targets if isinstance(item, ast.Assign) else ()) if isinstance(target, ast.Subscript)
    ]
    return any(not (isinstance(part.slice, ast.Constant) and isinstance(part.slice.value, str)) for part in held)


def _is_in_place(name: str) -> bool:
    inits = ("grad_", "__", "uniform_", "normal_")
    return name.endswith("_") and not name.startswith(("_", "clip_")) and not name.endswith(inits)


def _is_tensor_like(item: ast.AugAssign) -> bool:
    """No count: `n += 1`, `total += loss.item()`, `seen += len(y)`."""
    text = ast.unparse(item.value)
    return not (isinstance(item.value, ast.Constant) or re.search(r"\.item\(\)|^len\(|\.size\(|float\(|int\(", text))
