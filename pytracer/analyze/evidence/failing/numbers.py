"""What an expression of the failing line comes to, from the recorded numbers, lengths and shapes. Nothing is run."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable

Number = int | float
_LEVELS = 8
_NUMBER = Pattern(r"(?:\[\] \w+ )?(-?\d+(?:\.\d*)?(?:e[-+]?\d+)?)$")
_LENGTH = Pattern(r"\w+ of (\d+)$")
_LARGEST = 1e15
_OPERATIONS: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: lambda base, power: _power(base, power),
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "int": int, "float": float, "abs": abs, "round": round, "min": min, "max": max, "ceil": math.ceil,
    "floor": math.floor, "sqrt": math.sqrt, "log": math.log, "exp": math.exp,
}  # fmt: skip


def number_at(at: FailingLine, node: ast.AST | None, levels: int = _LEVELS) -> Number | None:
    """None where a part is not known."""
    try:
        found = _number(at, node, levels) if node is not None else None
    except (ArithmeticError, ValueError, TypeError):
        return None
    return found if found is not None and abs(found) < _LARGEST else None


def _number(at: FailingLine, node: ast.AST, levels: int) -> Number | None:
    if levels == 0 or not isinstance(node, ast.expr):
        return None
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) in (int, float) else None  # type: ignore[return-value]
    told = at.values.get(ast.unparse(node))
    found = _NUMBER.match(told) if told is not None else None
    if found is not None:
        return float(found[1]) if re.search(r"[.e]", found[1]) else int(found[1])
    if told is not None:
        return None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        inner = _number(at, node.operand, levels - 1)
        return -inner if inner is not None and isinstance(node.op, ast.USub) else inner
    if isinstance(node, ast.BinOp):
        left, right = _number(at, node.left, levels - 1), _number(at, node.right, levels - 1)
        made = _OPERATIONS.get(type(node.op))
        return made(left, right) if made is not None and left is not None and right is not None else None
    if isinstance(node, ast.Subscript):
        return _size(at, node.value, node.slice, levels) if _is_shape(node.value) else _constant(at, node)
    return _of_call(at, node, levels) if isinstance(node, ast.Call) else _constant(at, node)


def _power(base: Number, power: Number) -> Number:
    """By floats, so that no number becomes too long to compute."""
    found = math.pow(base, power)
    return int(found) if type(base) is type(power) is int and power >= 0 and found < _LARGEST else found


def _constant(at: FailingLine, node: ast.expr) -> Number | None:
    made = at.made(node) if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) else None
    last = made.node if made is not None else None
    return last.value if isinstance(last, ast.Constant) and type(last.value) in (int, float) else None  # type: ignore[return-value]


def _is_shape(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "shape"


def _size(at: FailingLine, shape: ast.expr, place: ast.expr, levels: int) -> Number | None:
    owner = at.shape(shape.value) if isinstance(shape, ast.Attribute) else None
    index = _number(at, place, levels - 1)
    known = owner is not None and type(index) is int and -len(owner.sizes) <= index < len(owner.sizes)
    return owner.sizes[index] if known and owner is not None and type(index) is int else None


def _of_call(at: FailingLine, call: ast.Call, levels: int) -> Number | None:
    called = called_name(call) or ""
    if isinstance(call.func, ast.Attribute) and variable(call.func.value) != "math":
        owner = at.shape(call.func.value)
        if called == "size" and len(call.args) == 1 and owner is not None:
            return _size(at, ast.Attribute(call.func.value, "shape", ast.Load()), call.args[0], levels)
        if call.args or owner is None:
            return None
        if called in ("numel", "dim"):
            return owner.elements if called == "numel" else len(owner.sizes)
        return _number(at, call.func.value, levels - 1) if called == "item" else None
    if call.keywords or any(isinstance(item, ast.Starred) for item in call.args):
        return None
    if called == "len" and len(call.args) == 1:
        found = _LENGTH.match(at.value(call.args[0]) or "")
        shape = at.shape(call.args[0])
        return int(found[1]) if found is not None else shape.sizes[0] if shape is not None and shape.sizes else None
    numbers = [_number(at, item, levels - 1) for item in call.args]
    known = [item for item in numbers if item is not None]
    function = _FUNCTIONS.get(called)
    return function(*known) if function is not None and known and len(known) == len(numbers) else None


def whole_number(at: FailingLine, node: ast.AST) -> int | None:
    """Of a constant, or of a variable that held one; nothing is computed."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    value = at.value(node)
    return int(value) if value is not None and re.fullmatch(r"-?\d+", value) else None
