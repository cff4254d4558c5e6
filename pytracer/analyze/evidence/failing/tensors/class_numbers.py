"""Class numbers of a shape that a loss does not take, and weights of another number of classes."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.tensors.last_layers import last_layer
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_SEVERAL = Pattern(r"0D or 1D target tensor expected, multi-target not supported")
_WEIGHTS = Pattern(
    r"weight tensor should be defined either for all (\d+) classes or no classes but got weight tensor of shape: "
    r"\[([\d, ]*)\]"
)
_VALUES = Pattern(r", (-?\d+)\.\.(-?\d+)$")
_PLANE = 2


def unfit_classes(at: FailingLine) -> str | None:
    """Of torch's own messages."""
    for expression, explain in _EXPLAINED:
        found = expression.search(at.message)
        if found is not None:
            return explain(at, found)
    return None


def _of_more_dimensions(at: FailingLine, found: re.Match[str]) -> str | None:
    """A target [N, 1], or one-hot rows of whole numbers, for a loss that takes class numbers."""
    call = at.only(ast.Call)
    given = [item for item in call.args if at.shape(item) is not None] if call is not None else []
    if call is None or not given:
        return None
    goal = given[-1]
    shape = at.shape(goal)
    if shape is None or len(shape.sizes) < _PLANE or not shape.dtype.startswith(("int", "uint")):
        return None
    name = source(goal)
    has = f"`{name}` {shape.words} {shape.dtype}{at.came(goal)}"
    if shape.sizes[1:] == (1,):
        return (
            f"{has} has a last dimension of 1, and class numbers have the batch's dimension only. Pass "
            f"`{name}.squeeze(1)`, or make it without that dimension."
        )
    output = at.shape(given[0]) if len(given) > 1 else None
    values = _VALUES.search(at.value(goal) or "")
    if output is not None and output.sizes == shape.sizes and values is not None and values.groups() == ("0", "1"):
        return (
            f"{has} has a dimension of classes, as one-hot rows or several labels do, and class numbers have none. "
            f"Pass `{name}.argmax(1)` where one class of each row is meant, or use BCEWithLogitsLoss with "
            f"`{name}.float()` where several are."
        )
    return f"{has} has {len(shape.sizes)} dimensions, and class numbers of an output [N, C] have one: pass [N]."


def _other_weights(at: FailingLine, found: re.Match[str]) -> str | None:
    """`CrossEntropyLoss(weight=...)` of another number of classes."""
    classes, sizes = int(found[1]), found[2]
    call = at.only(ast.Call)
    if call is None or not sizes.isdigit():
        return None
    weight, whose = _weight_of(at, call), source(call.func)
    output = next((item for item in call.args if at.shape(item) is not None), None)
    computed = call.args[0] if call.args and isinstance(call.args[0], ast.Call) else None
    shown = computed if computed is not None else output
    gives = f"`{source(shown)}`{last_layer(at, source(shown))} has" if shown is not None else "the output has"
    if _takes_several(at, call):
        return (
            f"The weight= of {whose}(){weight} has {sizes} numbers, and {gives} {classes} classes: {whose}() is used "
            "for outputs of several kinds. Make one with its own weight= for each of them."
        )
    return (
        f"The weight= of {whose}(){weight} has {sizes} numbers, and {gives} {classes} classes: one for each class is "
        f"needed. Count by torch.bincount(labels, minlength={classes}), or over a list of all classes, also those that "
        "the data lacks; or correct the number of outputs."
    )


def _takes_several(at: FailingLine, call: ast.Call) -> bool:
    """`criterion(a, y) + criterion(b, z)`, of a criterion that is made elsewhere."""
    whose = ast.unparse(call.func)
    used = [item for item in nodes_of(at.statement or at.scope) if isinstance(item, ast.Call) and item.args]
    given = {
        (ast.unparse(item.args[0]), ast.unparse(item.args[-1])) for item in used if ast.unparse(item.func) == whose
    }
    return keyword_value(call, "weight") is None and len({one for one, _ in given}) > 1 < len({two for _, two in given})


def _weight_of(at: FailingLine, call: ast.Call) -> str:
    """`` (line 20: `weight=class_weights(y)`) ``."""
    given, spot = keyword_value(call, "weight"), at.slice.spot(0)
    if given is None and spot is not None:
        made = at.slice.made(call.func, spot, calls=True)
        if not isinstance(made.node, ast.Call):
            return ""
        inside, spot = made.node, made.spot
        first = inside.args[0] if inside.args and called_name(inside) in ("CrossEntropyLoss", "NLLLoss") else None
        given = keyword_value(inside, "weight") or first
    if given is None or spot is None:
        return ""
    found = at.slice.made(given, spot, calls=True)
    return f" ({at.shown(found)})"


_EXPLAINED: tuple[tuple[Pattern, Callable[[FailingLine, re.Match[str]], str | None]], ...] = (
    (_SEVERAL, _of_more_dimensions),
    (_WEIGHTS, _other_weights),
)
