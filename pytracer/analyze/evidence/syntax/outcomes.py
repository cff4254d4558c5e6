"""How a condition came out, with the values that its variables were recorded to have."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any

from pytracer._patterns import Pattern

_SIZED = Pattern(r"(?:list|tuple|dict|set|str|bytes|deque|OrderedDict|defaultdict|Counter) of (\d+)$")
_COMPARES: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_COMPUTES: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "int": int, "float": float, "abs": abs, "round": round, "min": min, "max": max,
}  # fmt: skip
_NUMBERS = (bool, int, float)
_NONE = object()  # None as a value; None itself is what is not known

ValueOf = Callable[[ast.expr], str | None]


class _Items:
    """A container, of which only the length is recorded."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __bool__(self) -> bool:
        return self.count > 0


def outcome(test: ast.expr, value_of: ValueOf) -> bool | None:
    """Whether a condition held; None where what is recorded does not tell.

    Args:
        test: The condition.
        value_of: The recorded value of a variable, attribute or item: `7`, `0.25`, `True`, `None`, `list of 4`.
    """
    found = _value(test, value_of)
    return None if found is None else found is not _NONE and bool(found)


def number(node: ast.expr, value_of: ValueOf) -> int | float | None:
    """What an expression of recorded numbers comes to; None where a part is not known, or is no number."""
    found = _value(node, value_of)
    return found if type(found) in (int, float) else None


def recorded(text: str | None) -> Any:
    """The value that a recorded text tells of."""
    if text is None:
        return None
    if text in ("True", "False", "None"):
        return {"True": True, "False": False, "None": _NONE}[text]
    sized = _SIZED.match(text)
    if sized is not None:
        return _Items(int(sized[1]))
    try:
        return float(text) if re.search(r"[.eni]", text) else int(text)
    except ValueError:
        return None


def _value(node: ast.expr, value_of: ValueOf) -> Any:
    if isinstance(node, ast.Constant):
        return _NONE if node.value is None else node.value if type(node.value) in _NUMBERS else None
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        return recorded(value_of(node))
    if isinstance(node, ast.NamedExpr):
        return recorded(value_of(node.target))
    if isinstance(node, ast.UnaryOp):
        return _unary(node, value_of)
    if isinstance(node, ast.BoolOp):
        return _either(node, value_of)
    if isinstance(node, ast.Compare):
        return _compared(node, value_of)
    if isinstance(node, ast.BinOp):
        return _number(_COMPUTES.get(type(node.op)), _value(node.left, value_of), _value(node.right, value_of))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        return _called(_FUNCTIONS[node.func.id], node, value_of)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1 and not node.keywords:
        given = _value(node.args[0], value_of)
        if node.func.id == "len":
            return given.count if isinstance(given, _Items) else None
        if node.func.id == "bool":
            return None if given is None else given is not _NONE and bool(given)
    return None


def _called(function: Callable[..., Any], node: ast.Call, value_of: ValueOf) -> Any:
    """Of numbers alone: min() of a list, whose items are not recorded, is not known."""
    given = [_value(item, value_of) for item in node.args]
    if node.keywords or not given or any(not isinstance(item, _NUMBERS) for item in given):
        return None
    try:
        return function(*given)
    except (ArithmeticError, ValueError, TypeError):
        return None


def _unary(node: ast.UnaryOp, value_of: ValueOf) -> Any:
    value = _value(node.operand, value_of)
    if value is None:
        return None
    if isinstance(node.op, ast.Not):
        return value is _NONE or not value
    return -value if isinstance(node.op, ast.USub) and isinstance(value, _NUMBERS) else None


def _either(node: ast.BoolOp, value_of: ValueOf) -> bool | None:
    """`and` is known to be false by one of its parts, `or` to be true."""
    parts = [outcome(item, value_of) for item in node.values]
    decides = isinstance(node.op, ast.Or)
    if decides in parts:
        return decides
    return None if None in parts else not decides


def _compared(node: ast.Compare, value_of: ValueOf) -> bool | None:
    values = [_value(item, value_of) for item in (node.left, *node.comparators)]
    found: bool | None = True
    for kind, left, right in zip(node.ops, values, values[1:], strict=False):
        if left is None or right is None:
            found = None
            continue
        if isinstance(kind, (ast.Is, ast.IsNot)):
            if _NONE not in (left, right):
                return None
            one: Any = (left is right) == isinstance(kind, ast.Is)
        else:
            one = _number(_COMPARES.get(type(kind)), left, right)
        if one is False:
            return False
        found = found if one is True else None
    return found


def _number(operation: Callable[[Any, Any], Any] | None, left: Any, right: Any) -> Any:
    if operation is None or not isinstance(left, _NUMBERS) or not isinstance(right, _NUMBERS):
        return None
    try:
        return operation(left, right)
    except (ArithmeticError, ValueError):
        return None
