"""Whole numbers of the program's source, from recorded arrays and numbers: `1 + (len(wave) - size) // hop`."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Sequence

from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.parts import python_frame
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import HeldArray

_LEVELS = 12
_LARGEST = 1 << 62
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., int]] = {"min": min, "max": max, "int": int}
Tensors = Callable[[ast.expr, Spot], tuple[int, ...] | None]  # the sizes of a tensor that an expression is


class RecordedArrays:
    """The arrays and numbers that the crashed thread's variables held, by the place in the program that reads them."""

    def __init__(self, view: ProcessView, back: Slice, tensor: Tensors | None = None) -> None:
        self._arrays: Sequence[HeldArray] = view.crash.arrays if view.crash is not None else ()
        self._numbers = view.crash.numbers if view.crash is not None else ()
        self.back = back
        self._tensor = tensor or (lambda node, spot: None)

    def array(self, node: ast.AST, spot: Spot) -> HeldArray | None:
        """What an expression is: by the variable itself, or by one that its value was passed on from."""
        made = self.back.made(node, spot, calls=True)
        for part, at in (*made.through, (made.node, made.spot)):
            found = self.held(part, at)
            if found is not None:
                return found
        return None

    def held(self, node: ast.AST, spot: Spot) -> HeldArray | None:
        """Of a variable, in the function that the spot is in."""
        text = ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
        named = (item for item in self._arrays if item.expression == text)
        return next((item for item in named if spot.is_of(python_frame(item.frame))), None)

    def number(self, node: ast.AST | None, spot: Spot, levels: int = _LEVELS) -> int | None:
        """None where a part is not known."""
        if node is None or levels == 0:
            return None
        try:
            found = self._number(node, spot, levels)
        except (ArithmeticError, ValueError, TypeError, IndexError):
            return None
        return found if found is not None and abs(found) < _LARGEST else None

    def _number(self, node: ast.AST, spot: Spot, levels: int) -> int | None:
        if isinstance(node, ast.Constant):
            return node.value if type(node.value) is int else None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.number(node.operand, spot, levels - 1)
            return -inner if inner is not None else None
        if isinstance(node, ast.BinOp):
            left, right = self.number(node.left, spot, levels - 1), self.number(node.right, spot, levels - 1)
            made = _OPERATIONS.get(type(node.op))
            return made(left, right) if made is not None and left is not None and right is not None else None
        own = self._of_array(node, spot, levels)
        if own is None and isinstance(node, (ast.Name, ast.Attribute)):
            own = self._recorded(node, spot)
        if own is not None or not isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
            return own
        made_by = self.back.made(node, spot, calls=True)
        return self.number(made_by.node, made_by.spot, levels - 1) if made_by.node is not node else None

    def _recorded(self, node: ast.AST, spot: Spot) -> int | None:
        """Of a variable of a function that was running."""
        text = ast.unparse(node)
        held = {item.value for item in self._numbers if item.expression == text if spot.is_of(python_frame(item.frame))}
        return held.pop() if len(held) == 1 else None

    def _of_array(self, node: ast.AST, spot: Spot, levels: int) -> int | None:
        """`x.itemsize`, `x.strides[0]`, `len(x)`; `max(a, b)` and `int(a)` of numbers as well."""
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute):
            sizes = self.sizes(node.value, spot)
            index = self.number(node.slice, spot, levels - 1)
            return sizes[index] if sizes is not None and index is not None else None
        if isinstance(node, ast.Attribute) and node.attr in ("itemsize", "size", "nbytes", "ndim"):
            array = self.array(node.value, spot)
            return _attribute(array, node.attr) if array is not None else None
        if not isinstance(node, ast.Call) or node.keywords:
            return None
        name = called_name(node) or ""
        if name in ("size", "numel", "nelement") and isinstance(node.func, ast.Attribute):
            held = self._tensor(node.func.value, spot)
            index = self.number(node.args[0], spot, levels - 1) if len(node.args) == 1 else None
            if held is None or name != "size":
                return math.prod(held) if held is not None and not node.args else None
            return held[index] if index is not None else None
        if not node.args:
            return None
        if name == "len" and len(node.args) == 1:
            array = self.array(node.args[0], spot)
            shape = array.shape if array is not None else self._tensor(node.args[0], spot)
            return shape[0] if shape else None
        numbers = [self.number(item, spot, levels - 1) for item in node.args] if name in _FUNCTIONS else []
        known = [item for item in numbers if item is not None]
        return _FUNCTIONS[name](*known) if known and len(known) == len(numbers) else None

    def sizes(self, node: ast.AST | None, spot: Spot) -> tuple[int, ...] | None:
        """`x.shape`, `x.strides`, or a tuple of numbers."""
        if isinstance(node, ast.Attribute) and node.attr in ("shape", "strides"):
            array = self.array(node.value, spot)
            if array is None:
                return self._tensor(node.value, spot) if node.attr == "shape" else None
            return array.shape if node.attr == "shape" else array.strides
        if isinstance(node, (ast.Name, ast.Attribute)):
            made = self.back.made(node, spot, calls=True)
            return self.sizes(made.node, made.spot) if made.node is not node else None
        if isinstance(node, (ast.Tuple, ast.List)):
            parts = [self.number(item, spot) for item in node.elts]
            known = tuple(item for item in parts if item is not None)
            return known if len(known) == len(parts) else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):  # x.shape + (size,)
            left, right = self.sizes(node.left, spot), self.sizes(node.right, spot)
            return left + right if left is not None and right is not None else None
        return None


def _attribute(array: HeldArray, name: str) -> int | None:
    if name == "ndim":
        return len(array.shape)
    if name == "size":
        return math.prod(array.shape)
    nbytes = array.element_bytes
    return nbytes if name == "itemsize" or nbytes is None else nbytes * math.prod(array.shape)
