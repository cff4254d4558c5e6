"""An index that is no whole number: which one, and whether a division made it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.usage.settings import whence
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_INDEX = Pattern(
    r"(?:tensors|arrays) used as indices must be|slice indices must be integers|only integers, slices \("
    r"|(?:list|tuple) indices must be integers or slices, not float"
)
_FLOAT = Pattern(r"b?float\d+")
_KEEP_WHOLE = {"len", "int", "size", "numel", "argmax", "max", "min", "sum", "abs", "round", "arange", "randint"}
_NUMBERS = {"float", "double", "half", "bfloat16", "to", "type", "astype", "type_as"}
_CONDITIONS = {"eq", "ne", "gt", "ge", "lt", "le", "isnan", "isfinite", "isinf", "isin", "logical_and", "logical_not"}
_NUMBER = Pattern(r"-?\d+(?:\.\d*)?(?:e[+-]?\d+)?")


def floating_index(at: FailingLine) -> str | None:
    """`rows[n / 2]`, `seqs[words]` of a float tensor."""
    subscript = at.only(ast.Subscript)
    if not _INDEX.search(at.message) or not at.own or subscript is None:
        return None
    odd = {ast.dump(item): (item, kind) for item in _indices(subscript.slice) if (kind := _kind(at, item)) is not None}
    if len(odd) != 1:
        return None
    ((index, kind),) = odd.values()
    text, table = source(index), source(subscript.value)
    made = at.made(index)
    divided, spot = (made.node, made.spot) if made is not None else (index, at.slice.spot(0))
    if isinstance(divided, ast.BinOp) and isinstance(divided.op, ast.Div) and not _divides_floats(at, divided, spot):
        line = at.place(made.spot, made.line) if made is not None else f"line {at.line}"
        floor = source(ast.BinOp(divided.left, ast.FloorDiv(), divided.right))
        return (
            f"The index `{text}` of `{table}` is {kind}, as `/` at {line} always makes a float: write `{floor}` there, "
            "which keeps whole numbers whole."
        )
    mask = at.made(index.value) if isinstance(index, ast.Subscript) else made
    if mask is not None and _is_made_number(mask.node) and _fits(at, index, subscript.value):
        return (
            f"The index `{text}`{whence(at, index)} of `{table}` is {kind}, though a condition makes it: it is a mask, "
            f"whose 0 and 1 .long() would take for rows 0 and 1. Take the conversion away, or write `{text}.bool()`."
        )
    if not isinstance(index, (ast.Name, ast.Attribute)):
        return None
    to = f"int({text})" if kind == "a float" else f"{text}.long()"
    to = f"{text}.astype(int)" if (at.value(index) or "").endswith(" array") else to
    of_mask = "" if kind == "a float" else f"; a mask of 0 and 1 must be bool (`{text} > 0.5`)"
    return (
        f"The index `{text}`{whence(at, index)} of `{table}` is {kind}: write `{to}` there, which cuts off decimals, "
        f"or round it where it is made{of_mask}."
    )


def _fits(at: FailingLine, mask: ast.expr, table: ast.expr) -> bool:
    """Whether a mask can pick of the table: not the rows of two that a condition chooses for each of many samples."""
    picks, held = at.shape(mask), at.shape(table)
    if picks is None or held is None:
        return True
    last = len(held.sizes) - len(picks.sizes)
    return any(held.sizes[first : first + len(picks.sizes)] == picks.sizes for first in range(last + 1))


def _is_made_number(node: ast.AST) -> bool:
    """`(energy > 0.3).float()`, `(kind == 1) * 1.0`: a mask that was made a number."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _NUMBERS and _is_condition(node.func.value)
    sides = [node.left, node.right] if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) else []
    return any(
        _is_condition(one) and isinstance(other, ast.Constant) and other.value == 1
        for one, other in zip(sides, sides[::-1], strict=True)
    )


def _is_condition(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.BitAnd, ast.BitOr)):
        return _is_condition(node.left) and _is_condition(node.right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return _is_condition(node.operand)
    called = called_name(node) if isinstance(node, ast.Call) else None
    return isinstance(node, ast.Compare) or called in _CONDITIONS


def _indices(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Tuple):
        for item in node.elts:
            yield from _indices(item)
    elif isinstance(node, ast.Slice):
        yield from (item for item in (node.lower, node.upper, node.step) if item is not None)
    else:
        yield node


def _kind(at: FailingLine, node: ast.expr) -> str | None:
    """As what it is floating."""
    shape = at.shape(node)
    if shape is None and isinstance(node, ast.Subscript):
        shape = at.shape(node.value)  # a part of it
    if shape is not None:
        return shape.dtype if _FLOAT.fullmatch(shape.dtype) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return "a float"
    value = at.value(node) or ""
    return "a float" if _NUMBER.fullmatch(value) and not re.fullmatch(r"-?\d+", value) else None


def _divides_floats(at: FailingLine, division: ast.BinOp, spot: Spot | None) -> bool:
    """Whether a side is known to be no whole number, or is not known to be one by a plain name."""
    for side in (division.left, division.right):
        for item in nodes_of(side):
            if isinstance(item, ast.Constant) and isinstance(item.value, float):
                return True
            if isinstance(item, ast.Div) or (isinstance(item, ast.Call) and called_name(item) not in _KEEP_WHOLE):
                return True
            value = at.value_at(item, spot) if spot is not None else None
            if value is not None and (
                re.search(r"\bb?float\d", value) or (_NUMBER.fullmatch(value) and not re.fullmatch(r"-?\d+", value))
            ):
                return True
    return False
