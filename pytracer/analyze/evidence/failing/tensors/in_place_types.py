"""An operation in place whose result has another kind of number than the tensor that must hold it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.usage.settings import whence
from pytracer.analyze.evidence.syntax.calls import keyword_value, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_CAST = Pattern(r"result type (Float|Double|Half|BFloat16) can't be cast to the desired output type ")
_TYPES = {"Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16"}
_WHOLE = Pattern(r"u?int\d+")
_FLOAT = Pattern(r"b?float\d+")
_MOST = 350  # in four lines
_DIVIDES = {"div_", "divide_", "true_divide_"}
_PLACES = (ast.Name, ast.Attribute, ast.Subscript)


class _InPlace(msgspec.Struct, frozen=True):
    """`held`: what is written to. `by`: the operator, or the method with its brackets. `others`: its operands."""

    held: ast.expr
    by: str
    others: list[ast.expr]
    instead: str
    divides: bool


def cannot_hold(at: FailingLine) -> str | None:
    """Which tensor is whole, what it is computed with, and both ways out."""
    cast = _CAST.search(at.message)
    written = _written(at) if cast is not None and at.own else None
    if cast is None or written is None:
        return None
    base = _recorded(at, written.held)
    shape = at.shape(base)
    if shape is None or not _WHOLE.fullmatch(shape.dtype):
        return None
    name, result = source(base), _TYPES[cast[1]]
    start = f"`{name}`{whence(at, base)} is {shape.dtype} and cannot hold the {result} that `{written.by}` makes"
    odd = [(item, *found) for item in written.others if (found := _floating(at, item)) is not None]
    away = f"convert `{name}` before (`.float()`)" if isinstance(written.held, ast.Subscript) else written.instead
    if written.divides:
        floor = "`//=`" if written.by == "/=" else "`rounding_mode='floor'`"
        return f"{start}, as true division makes a float: use {floor} for whole numbers; for fractions {away}."
    if len(odd) != 1 or any(_hides(item) for item in written.others if item is not odd[0][0]):
        return None
    operand, read, kind = odd[0]
    text = source(operand)
    why = f"`{source(read)}`{whence(at, read)} is {kind}"
    told = at.value(operand) or ""
    if isinstance(operand, ast.Constant) or (kind == "a float" and operand is read and not told.endswith(".0")):
        return f"{start}, as {why}: {away}."
    if operand is not read:
        why = f"{why} in `{text}`"
    whole = text if isinstance(operand, _PLACES) else f"({text})"
    convert = f"int({text})" if kind == "a float" else f"{whole}.long()"
    words = f"{start}, as {why}: write `{convert}` if it is a whole number; else {away}."
    return words if len(words) < _MOST else words.replace(whence(at, base), "").replace(whence(at, read), "")


def _written(at: FailingLine) -> _InPlace | None:
    statement = at.node
    if isinstance(statement, ast.AugAssign):
        by = f"{_symbol(statement)}="
        again = f"`{source(statement.target)} = {source(statement.target)} {by[:-1]} ...`, which makes a new tensor"
        begins = f"begin `{source(statement.target)}` with floats (`0.0`, dtype=torch.float32)"
        instead = begins if isinstance(statement.op, (ast.Add, ast.Sub)) else f"write {again}"
        return _InPlace(statement.target, by, [statement.value], instead, isinstance(statement.op, ast.Div))
    call = at.only(ast.Call)
    function = call.func if call is not None else None
    if call is None or not isinstance(function, ast.Attribute) or any(isinstance(i, ast.Starred) for i in call.args):
        return None
    others = passed_values(call)
    out = keyword_value(call, "out")
    if isinstance(out, _PLACES):
        others = [item for item in others if item is not out]
        kept = [function.value] if at.shape(function.value) is not None else []
        name = function.attr
        return _InPlace(out, f"{name}()", [*kept, *others], "leave out `out=`", f"{name}_" in _DIVIDES)
    method = function.attr
    if not method.endswith("_") or method.endswith("__") or not isinstance(function.value, _PLACES):
        return None
    again = f"use `{method[:-1]}()`, which makes a new tensor"
    return _InPlace(function.value, f"{method}()", others, again, method in _DIVIDES)


def _symbol(statement: ast.AugAssign) -> str:
    return ast.unparse(statement).removeprefix(ast.unparse(statement.target)).split("=")[0].strip()


def _floating(at: FailingLine, operand: ast.expr) -> tuple[ast.expr, str] | None:
    """The only part of it that is floating, and how; None as well where it may be converted on the way."""
    parts = ((_recorded(at, part), part) for part in _leaves(operand))
    found = {ast.dump(base): (base, kind) for base, part in parts if (kind := _kind(at, base, part)) is not None}
    return next(iter(found.values())) if len(found) == 1 else None


def _recorded(at: FailingLine, node: ast.expr) -> ast.expr:
    """The tensor that an item is read from: `gain` of `gain[3]`."""
    base = node
    while isinstance(base, ast.Subscript) and (at.shape(base) is None or at.shape(base.value) is not None):
        base = base.value
    return base if at.shape(base) is not None else node


def _kind(at: FailingLine, base: ast.expr, part: ast.expr) -> str | None:
    if isinstance(part, ast.Constant):
        return "a float" if isinstance(part.value, float) else None
    shape = at.shape(base)
    if shape is not None:
        return shape.dtype if _FLOAT.fullmatch(shape.dtype) else None
    return "a float" if re.fullmatch(r"-?\d+(?:\.\d+(?:e-?\d+)?|e-\d+)", at.value(part) or "") else None


def _hides(operand: ast.expr) -> bool:
    """Whether it may be floating as well: a call's result."""
    return any(isinstance(item, ast.Call) for item in nodes_of(operand))


def _is_whole(at: FailingLine, part: ast.expr) -> bool:
    shape = at.shape(part)
    if shape is not None:
        return _WHOLE.fullmatch(shape.dtype) is not None
    told = at.value(part) if not isinstance(part, ast.Constant) else repr(part.value)
    return re.fullmatch(r"-?\d+", told or "") is not None


def _leaves(node: ast.expr) -> Iterator[ast.expr]:
    """Of sums and products, which keep what is floating."""
    if isinstance(node, ast.BinOp):
        yield from _leaves(node.left)
        yield from _leaves(node.right)
    elif isinstance(node, ast.UnaryOp):
        yield from _leaves(node.operand)
    elif isinstance(node, (*_PLACES, ast.Constant)):
        yield node
