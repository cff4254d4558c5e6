"""What a failing backward() goes backward from, in the function that made it."""

from __future__ import annotations

import ast

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.autograd.forward_lines import given
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import parameters

_BACKWARDS = ("backward", "manual_backward")
_SCALES = ("scale", "scale_loss")
_DEPTHS = 8
_HANDED = Pattern(
    r"(?i)(?:^|[._])\w*(?:accelerator|fabric|engine|autograd|booster|strategy|trainer|model|optim\w*|opt)$|^self$"
)


class Loss(msgspec.Struct, frozen=True):
    """What a function on the stack goes backward from, or hands on to do so: the expression there.

    `inner`: the functions below, to which it was only passed.
    """

    value: ast.expr
    spot: Spot
    inner: tuple[Spot, ...]


def loss_of(at: FailingLine) -> Loss | None:
    """From the failing line outward, as long as the loss is only a parameter of the function."""
    call, spot = at.only(ast.Call), at.slice.spot(0)
    if call is None and isinstance(at.node, ast.Expr) and isinstance(at.node.value, ast.Call):
        call = at.node.value
    value = _backward_of(call) if call is not None else None
    inner: tuple[Spot, ...] = ()
    for _ in range(_DEPTHS):
        if value is None or spot is None:
            return None
        name = variable(value)
        if name is None or name not in parameters(spot.scope) or given(spot.scope, name, spot.line):
            return Loss(value, spot, inner)
        step = at.slice.argument(name, spot)
        inner = (*inner, spot)
        if step is None or not isinstance(step[0], ast.expr):
            return None
        value, spot = step[0], step[1]
    return None


def _backward_of(call: ast.Call) -> ast.expr | None:
    """`loss` of `loss.backward()`, `scaler.scale(loss).backward()`, `self.manual_backward(loss)`."""
    if called_name(call) not in _BACKWARDS or not isinstance(call.func, ast.Attribute):
        return None
    handed = call.func.attr == "manual_backward" or _HANDED.search(ast.unparse(call.func.value)) is not None
    own = [item for item in call.args if not isinstance(item, (ast.Constant, ast.Starred))] if handed else []
    value = own[0] if own else call.func.value
    while isinstance(value, ast.Call) and called_name(value) in _SCALES and value.args:
        value = value.args[0]
    return value
