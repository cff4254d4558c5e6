"""Some numbers of an array that was made of a list, as the list still has them: `torch.tensor(ids)`."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.parts import python_frame
from pytracer.decode.types.snapshot import HeldNumber

_MODULES = ("np", "numpy", "torch")
_MAKE = frozenset({"tensor", "as_tensor", "array", "asarray", "LongTensor", "IntTensor"})
_CHANGE = frozenset({"append", "extend", "insert", "pop", "remove", "clear", "fill"})
_READ = frozenset({"len", "max", "min", "sum", "sorted", "list", "tuple", "set", "print", "zip", "enumerate", "range"})
_ITEM = Pattern(r"\[\d+\]$")


def listed_numbers(numbers: Sequence[HeldNumber], back: Slice, node: ast.expr, spot: Spot) -> tuple[int, ...]:
    """Of the variable at a spot; nothing where the list was changed since, or the call does more than copy it."""
    made = back.made(node, spot, calls=False)
    call = made.node
    if not isinstance(call, ast.Call) or called_name(call) not in _MAKE or len(call.args) != 1:
        return ()
    owner = variable(call.func.value) if isinstance(call.func, ast.Attribute) else None
    name = call.args[0].id if isinstance(call.args[0], ast.Name) else None
    if owner not in _MODULES or name is None or is_changed(made.spot, name, made.line):
        return ()
    array = variable(node)
    if array is None or is_changed(spot, array, made.line if made.spot.scope is spot.scope else 0, made.line):
        return ()
    return tuple(
        item.value
        for item in numbers
        if (part := _ITEM.search(item.expression)) is not None
        and item.expression[: part.start()] == name
        and made.spot.is_of(python_frame(item.frame))
    )


def is_changed(spot: Spot, name: str, line: int, made: int | None = None) -> bool:
    """Whether its function may have given the list, or the array of line `made`, other numbers since that line."""
    if any(at >= line and at != made for at, _ in lines_that_bind(spot.scope, name)):
        return True
    for item in own_nodes(spot.scope):
        if getattr(item, "lineno", 0) < line:
            continue
        if isinstance(item, ast.Subscript) and isinstance(item.ctx, (ast.Store, ast.Del)):
            changed: ast.expr | None = item.value
        elif isinstance(item, ast.AugAssign):
            changed = item.target
        elif isinstance(item, ast.Call) and (out := keyword_value(item, "out")) is not None and variable(out) == name:
            return True
        elif isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and _changes(item.func.attr):
            changed = item.func.value
        elif isinstance(item, ast.Call) and isinstance(item.func, ast.Name) and item.func.id not in _READ:
            if made is None and any(variable(one) == name for one in item.args):
                return True  # a function of the program may put others into the list
            changed = None
        else:
            changed = None
        if changed is not None and variable(changed) == name:
            return True
    return False


def _changes(method: str) -> bool:
    """`append`, and `clamp_` of a tensor."""
    return method in _CHANGE or (method.endswith("_") and not method.startswith("_"))
