"""Comparisons such as `numel(running_mean) == size(input, 1)`, evaluated for recorded arguments.

Exact where all is known, else not decided: a size, a value or an argument that was not recorded makes the whole
comparison unknown, never false.
"""

from __future__ import annotations

import ast
import copy
import functools
import operator
from collections.abc import Callable, Mapping

import msgspec

from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.decode.types.snapshot import Argument

_RELATIONS: dict[type[ast.cmpop], tuple[Callable[[int, int], bool], str]] = {
    ast.Eq: (operator.eq, ""),
    ast.NotEq: (operator.ne, "anything but "),
    ast.LtE: (operator.le, "at most "),
    ast.Lt: (operator.lt, "less than "),
    ast.GtE: (operator.ge, "at least "),
}
_NUMBERS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Mult: operator.mul,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
}
_IF = " if "
_FUNCTIONS = {"size", "numel", "min", "max", "least_sum"}
_METHODS = {"least_sum": "sum"}


class Given(msgspec.Struct, frozen=True):
    """An argument as it was passed. `name`: as the program calls it, `` `idx` ``.

    A whole number has a `value`; a tensor `elements` and the `base` of its storage, and is a `tensor` where its sizes
    are known, too. `overwritten`: the numbers that are recorded of it are not those that were passed. `origin`: what
    it was made of, in words, and `holds`: what that holds.
    """

    name: str
    tensor: Argument | None = None
    value: int | None = None
    elements: int | None = None
    base: int | None = None
    overwritten: bool = False
    origin: str | None = None
    holds: str | None = None


class Side(msgspec.Struct, frozen=True):
    """One side of a comparison: its value, and the function and argument that it is of, such as `numel` of `bias`."""

    value: int
    function: str | None
    argument: str | None
    dimension: int | None
    arguments: tuple[str, ...]


class Broken(msgspec.Struct, frozen=True):
    """A comparison that does not hold. `relation`: words before the second value."""

    left: Side
    right: Side
    relation: str
    text: str = ""  # as it is stored


def broken(text: str, given: Mapping[str, Given]) -> Broken | None:
    """None where the comparison holds, does not apply, or cannot be decided."""
    sides = _sides(text, given)
    if sides is None:
        return None
    node, left, right = sides
    holds, words = _RELATIONS[type(node.ops[0])]
    return None if holds(left.value, right.value) else Broken(left, right, words, text)


def is_decided(text: str, given: Mapping[str, Given]) -> bool:
    """Whether all that the comparison needs is known."""
    return _sides(text, given) is not None


def unfit_numbers(text: str, given: Mapping[str, Given]) -> tuple[int, int] | None:
    """Of a comparison that would not hold if its condition were known to apply: both values."""
    found = broken(text.partition(_IF)[0], given)
    return (found.left.value, found.right.value) if found is not None else None


def broken_but_for_condition(text: str, given: Mapping[str, Given]) -> Broken | None:
    """A comparison that would not hold if its condition applied, as `broken` has it; None where that is known to."""
    return broken(text.partition(_IF)[0], given) if _IF in text and not is_decided(text, given) else None


def left_number(text: str, given: Mapping[str, Given]) -> int | None:
    """What stands before the comparison, where that is known."""
    side = _side(_parsed(text.partition(_IF)[0]).left, given)
    return side.value if side is not None else None


def left_argument(text: str) -> str | None:
    """`index` of `max(index) < size`."""
    node = _parsed(text.partition(_IF)[0]).left
    first = node.args[0] if isinstance(node, ast.Call) and node.args else node
    return first.id if isinstance(first, ast.Name) else None


def left_function(text: str) -> str | None:
    """`max` of `max(index) < size`."""
    node = _parsed(text.partition(_IF)[0]).left
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None


def may_be_equal(text: str) -> bool:
    """Whether it is one of `<=`: the offset behind the last row is as large as there are rows."""
    return isinstance(_parsed(text.partition(_IF)[0]).ops[0], ast.LtE)


def holds(text: str, given: Mapping[str, Given]) -> bool:
    """Whether a comparison holds, whether or not its condition applies."""
    comparison = text.partition(_IF)[0]
    return is_decided(comparison, given) and broken(comparison, given) is None


def _sides(text: str, given: Mapping[str, Given]) -> tuple[ast.Compare, Side, Side] | None:
    comparison, _, condition = text.partition(_IF)
    if condition and not _applies(condition, given):
        return None
    node = _parsed(comparison)
    left, right = _side(node.left, given), _side(node.comparators[0], given)
    return (node, left, right) if left is not None and right is not None else None


def as_code(text: str, texts: Mapping[str, str]) -> str | None:
    """`targets.max() < logits.size(-1)`: a comparison as the program would write it; None where an argument is not
    passed, or it depends on an option.
    """
    comparison, _, condition = text.partition(_IF)
    if condition.isidentifier():
        return None
    node = _parsed(comparison)
    names = {item.id for item in nodes_of(node) if isinstance(item, ast.Name)} - _FUNCTIONS
    if not names <= texts.keys() or any(texts[name] == "None" for name in names):
        return None
    return ast.unparse(_Written(texts).visit(copy.deepcopy(node)))


class _Written(ast.NodeTransformer):
    """Functions of terms as methods of the tensors that the program passes."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """`size(x, 1)` as `x.size(1)`."""
        if not isinstance(node.func, ast.Name) or not isinstance(node.args[0], ast.Name):
            return node
        method = _METHODS.get(node.func.id, node.func.id)
        tensor = ast.parse(self._texts[node.args[0].id], mode="eval").body
        return ast.Call(ast.Attribute(tensor, method, ast.Load()), [self.visit(item) for item in node.args[1:]], [])

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """An argument that is a number."""
        return ast.parse(self._texts[node.id], mode="eval").body


def _applies(condition: str, given: Mapping[str, Given]) -> bool:
    """Whether a flag is set, or a comparison holds; where that is not known, it does not apply."""
    if condition.isidentifier():
        return bool(given[condition].value) if condition in given else False
    node = _parsed(condition)
    left, right = _value(node.left, given), _value(node.comparators[0], given)
    return left is not None and right is not None and _RELATIONS[type(node.ops[0])][0](left, right)


@functools.cache
def _parsed(text: str) -> ast.Compare:
    node = ast.parse(text, mode="eval").body
    if not isinstance(node, ast.Compare):
        raise TypeError(f"not a comparison: {text}")
    return node


def _side(node: ast.expr, given: Mapping[str, Given]) -> Side | None:
    value = _value(node, given)
    if value is None:
        return None
    names = tuple(dict.fromkeys(item.id for item in nodes_of(node) if isinstance(item, ast.Name) and item.id in given))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        dimension = _value(node.args[1], given) if node.args[1:] else None
        return Side(value, node.func.id, names[0], dimension, names)
    if isinstance(node, ast.Name):
        return Side(value, None, node.id, None, names)
    return Side(value, None, None, None, names)


def _value(node: ast.expr, given: Mapping[str, Given]) -> int | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _value(node.operand, given)
        return None if value is None else -value
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, given), _value(node.right, given)
        return None if left is None or right is None else _NUMBERS[type(node.op)](left, right)
    if isinstance(node, ast.Name):
        return given[node.id].value if node.id in given else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and isinstance(node.args[0], ast.Name):
        item = given.get(node.args[0].id)
        if item is not None and node.func.id == "numel":
            return item.elements
        tensor = item.tensor if item is not None else None
        if tensor is None:
            return None
        if node.func.id == "size":
            dimension = _value(node.args[1], given)
            return None if dimension is None else _size(tensor, dimension)
        return _OF_TENSOR[node.func.id](tensor)
    raise TypeError(f"not a term: {ast.unparse(node)}")


def _size(tensor: Argument, dimension: int) -> int | None:
    place = dimension + tensor.dimensions if dimension < 0 else dimension
    return tensor.sizes[place] if 0 <= place < min(tensor.dimensions, len(tensor.sizes)) else None


def _least_sum(tensor: Argument) -> int | None:
    """Of a list of lengths: one is the largest, none is smaller than the smallest."""
    if tensor.minimum is None or tensor.maximum is None or tensor.dimensions != 1 or tensor.elements == 0:
        return None
    return tensor.minimum * (tensor.elements - 1) + tensor.maximum


_OF_TENSOR: dict[str, Callable[[Argument], int | None]] = {
    "min": lambda tensor: tensor.minimum,
    "max": lambda tensor: tensor.maximum,
    "dim": lambda tensor: tensor.dimensions,
    "least_sum": _least_sum,
}
