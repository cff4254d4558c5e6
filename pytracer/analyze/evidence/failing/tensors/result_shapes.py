"""The shape of what an expression makes, from the recorded shapes of what it works on. Nothing is run."""

from __future__ import annotations

import ast
import math

from pytracer.analyze.evidence.failing.expressions import whole
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.numbers import number_at
from pytracer.analyze.evidence.failing.recorded import Shape
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.names import variable

_LEVELS = 12
_LIBRARIES = (
    "torch", "F", "np", "numpy", "functional", "nn", "torch.nn.functional", "nn.functional", "torch.linalg", "math",
)  # fmt: skip
_SAME = frozenset({
    "float", "double", "half", "long", "int", "bool", "to", "type", "clone", "detach", "cuda", "cpu", "contiguous",
    "pow", "exp", "log", "sqrt", "abs", "relu", "sigmoid", "tanh", "neg", "square", "clamp", "copy", "astype",
    "softmax", "log_softmax", "sin", "cos", "rsqrt", "logical_not", "bfloat16", "gelu", "silu", "masked_fill",
    "dropout", "zeros_like", "ones_like", "empty_like",
})  # fmt: skip
PAIRED = frozenset({
    "add", "sub", "mul", "div", "subtract", "multiply", "divide", "true_divide", "maximum", "minimum", "eq", "ne", "lt",
    "le", "gt", "ge", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "logical_and", "logical_or", "atan2",
    "fmod", "remainder", "hypot", "cosine_similarity", "logical_xor", "isclose",
})  # fmt: skip
_CONDITIONS = frozenset(
    {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not", "isclose"}
)
_LOSSES = ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss")
MATRICES = frozenset({"matmul", "mm", "bmm", "dot"})
_JOINED = frozenset({"cat", "concat", "concatenate", "stack"})
PRODUCTS = frozenset({*MATRICES, *_JOINED, "outer", "ger", "cdist", "einsum", "one_hot", "kron", "diag", "diag_embed"})
EXPANDS = frozenset({"expand", "expand_as", "broadcast_to", "repeat", "tile"})
SIZED = frozenset(
    {"zeros", "ones", "empty", "rand", "randn", "full", "eye", "new_zeros", "new_ones", "new_empty", "new_full"}
)
VIEWS = frozenset({"expand", "expand_as", "broadcast_to"})
ALLOCATES = (_SAME | PAIRED | PRODUCTS | SIZED | {"repeat", "tile", "where"} | {"mean", "sum"}) - {"detach"}
_PLANE = 2


class Shapes:
    """Of the expressions of one line."""

    def __init__(self, at: FailingLine) -> None:
        self._at = at

    def of(self, node: ast.AST, levels: int = _LEVELS) -> Shape | None:
        """None where a part is not known; a number has no dimensions."""
        if levels == 0 or not isinstance(node, ast.expr):
            return None
        told = self._at.shape(node)
        if told is not None:
            return told
        if isinstance(node, ast.UnaryOp):
            return self.of(node.operand, levels - 1)
        if isinstance(node, ast.BinOp):
            left, right = self.of(node.left, levels - 1), self.of(node.right, levels - 1)
            return _matrices(left, right) if isinstance(node.op, ast.MatMult) else broadcast(left, right)
        if isinstance(node, ast.Compare) and len(node.comparators) == 1:
            made = broadcast(self.of(node.left, levels - 1), self.of(node.comparators[0], levels - 1))
            return Shape(made.sizes, "bool") if made is not None else None
        if isinstance(node, ast.Subscript):
            return self._item(node, levels)
        if isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
            owner = self.of(node.value, levels - 1)
            return Shape((*owner.sizes[:-2], *owner.sizes[-2:][::-1]), owner.dtype) if owner is not None else None
        if isinstance(node, ast.Call):
            return self._call(node, called_name(node) or "", levels)
        return Shape((), "") if number_at(self._at, node) is not None else None

    def operands(self, node: ast.AST) -> list[ast.expr]:
        """What it works on: of a method its object first."""
        if isinstance(node, ast.BinOp):
            return [node.left, node.right]
        if isinstance(node, ast.Compare):
            return [node.left, *node.comparators]
        if not isinstance(node, ast.Call):
            return []
        owner = [node.func.value] if isinstance(node.func, ast.Attribute) and not _is_library(node.func.value) else []
        if isinstance(node.func, ast.Attribute) and called_name(node) == "outer" and owner:
            owner = [] if isinstance(owner[0], ast.Attribute) else owner  # np.subtract.outer
        given = [*owner, *node.args]
        if called_name(node) in _JOINED:
            return [*node.args[0].elts] if node.args and isinstance(node.args[0], (ast.List, ast.Tuple)) else []
        if called_name(node) == "einsum":
            return [item for item in given if not isinstance(item, ast.Constant)]
        if called_name(node) in ("repeat", "tile", "expand") and owner:
            return owner
        if called_name(node) in ("one_hot", "diag", "diag_embed", *_SAME):
            return given[:1]
        return given[-2:] if called_name(node) == "where" else given[:2]

    def _call(self, node: ast.Call, name: str, levels: int) -> Shape | None:
        given = [self.of(item, levels - 1) for item in self.operands(node)]
        first = given[0] if given else None
        second = given[1] if len(given) > 1 else None
        if name in SIZED:
            return self._sized(node, name)
        if name in _SAME:
            return self._converted(first, node, name)
        if name in PAIRED or self.is_loss(node):
            made = broadcast(first, second)
            return Shape(made.sizes, "bool") if made is not None and name in _CONDITIONS else made
        if name in MATRICES:
            return _matrices(first, second)
        if name in ("outer", "ger") and first is not None and second is not None:
            return Shape((first.elements, second.elements), _type(first, second))
        if name == "where" and len(node.args) == 3:
            return broadcast(broadcast(self.of(node.args[0], levels - 1), first), second)
        if name == "cdist" and first is not None and second is not None and len(first.sizes) >= _PLANE:
            return Shape((*first.sizes[:-1], second.sizes[-2]), first.dtype) if len(second.sizes) >= _PLANE else None
        if name == "one_hot" and first is not None:
            classes = self._numbers([*node.args[1:], *(item.value for item in node.keywords)])
            return Shape((*first.sizes, classes[0]), "int64") if classes and classes[0] > 0 else None
        if name in ("diag", "diag_embed") and first is not None and len(first.sizes) == 1 and len(node.args) <= 1:
            return Shape((first.sizes[0], first.sizes[0]), first.dtype)
        if name in _JOINED:
            return self._joined(node, given, stacked=name == "stack")
        if name == "einsum":
            return self._einsum(node, given)
        return self._moved(node, name, first)

    def is_loss(self, node: ast.Call) -> bool:
        """Whether a loss layer is called that broadcasts."""
        layer, name = self._at.layer, variable(node.func)
        return layer is not None and name is not None and layer.name == name and layer.kind in _LOSSES

    def _converted(self, first: Shape | None, node: ast.Call, name: str) -> Shape | None:
        if first is None or any(item.arg == "dtype" for item in node.keywords):
            return Shape(first.sizes, "") if first is not None else None
        same = name in ("detach", "clone", "contiguous", "cpu", "cuda", "copy", "abs", "neg", "relu", "clamp")
        types = {"float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32"}
        floats = first.dtype.startswith(("float", "bfloat")) and name not in ("to", "type", "astype", *types, "bool")
        return Shape(first.sizes, first.dtype if same or floats else types.get(name, "bool" if name == "bool" else ""))

    def _sized(self, node: ast.Call, name: str) -> Shape | None:
        args: list[ast.expr] = [*node.args[:1]] if name in ("full", "new_full") else [*node.args]
        if len(args) == 1 and isinstance(args[0], (ast.Tuple, ast.List)):
            args = [*args[0].elts]
        sizes = self._numbers(args)
        if sizes is None or not sizes or min(sizes) < 0:
            return None
        sizes = [*sizes, *sizes] if name == "eye" and len(sizes) == 1 else sizes
        typed = keyword_value(node, "dtype")
        return Shape(tuple(sizes), typed.attr if isinstance(typed, ast.Attribute) else "")

    def _numbers(self, nodes: list[ast.expr]) -> list[int] | None:
        found = [number_at(self._at, item) for item in nodes]
        known = [item for item in found if type(item) is int]
        return known if len(known) == len(found) else None

    def _moved(self, node: ast.Call, name: str, first: Shape | None) -> Shape | None:
        """Methods that change the dimensions only, and those that repeat."""
        if first is None or not isinstance(node.func, ast.Attribute):
            return None
        rank, args = len(first.sizes), [*node.args[_is_library(node.func.value) :]]
        if name == "expand_as" and args:
            other = self.of(args[0])
            return Shape(other.sizes, first.dtype) if other is not None else None
        if len(args) == 1 and isinstance(args[0], (ast.Tuple, ast.List)):
            args = [*args[0].elts]
        numbers = self._numbers(args)
        if numbers is None:
            return None
        if name in ("t",) and rank == _PLANE:
            return Shape(first.sizes[::-1], first.dtype)
        if name == "squeeze" and len(numbers) == 1 and -rank <= numbers[0] < rank and first.sizes[numbers[0]] == 1:
            place = numbers[0] % rank
            return Shape((*first.sizes[:place], *first.sizes[place + 1 :]), first.dtype)
        if name == "unsqueeze" and len(numbers) == 1 and -rank - 1 <= numbers[0] <= rank:
            place = numbers[0] % (rank + 1)
            return Shape((*first.sizes[:place], 1, *first.sizes[place:]), first.dtype)
        if (
            name in ("transpose", "swapaxes")
            and len(numbers) == _PLANE
            and all(-rank <= item < rank for item in numbers)
        ):
            turned = [*first.sizes]
            turned[numbers[0]], turned[numbers[1]] = turned[numbers[1]], turned[numbers[0]]
            return Shape(tuple(turned), first.dtype)
        if name == "permute" and sorted(item % rank for item in numbers) == [*range(rank)]:
            return Shape(tuple(first.sizes[item] for item in numbers), first.dtype)
        if name in ("view", "reshape"):
            return _reshaped(first, numbers)
        if name in ("expand", "broadcast_to") and len(numbers) >= rank:
            padded = (*([1] * (len(numbers) - rank)), *first.sizes)
            fits = all(size == 1 or new in (-1, size) for size, new in zip(padded, numbers, strict=True))
            sizes_now = tuple(size if new == -1 else new for size, new in zip(padded, numbers, strict=True))
            return Shape(sizes_now, first.dtype) if fits else None
        if name in ("repeat", "tile") and len(numbers) >= rank:
            padded = (*([1] * (len(numbers) - rank)), *first.sizes)
            return Shape(tuple(size * new for size, new in zip(padded, numbers, strict=True)), first.dtype)
        return None

    def _joined(self, node: ast.Call, given: list[Shape | None], *, stacked: bool) -> Shape | None:
        along = keyword_value(node, "dim", "axis")
        along = along if along is not None else node.args[1] if len(node.args) > 1 else ast.Constant(0)
        place, known = whole(along), [item for item in given if item is not None]
        if place is None or not known or len(known) != len(given):
            return None
        sizes, rank = [*known[0].sizes], len(known[0].sizes) + stacked
        if not -rank <= place < rank or any(len(item.sizes) != len(sizes) for item in known):
            return None
        if stacked:
            sizes.insert(place % rank, len(known))
        else:
            sizes[place] = sum(item.sizes[place] for item in known)
        return Shape(tuple(sizes), known[0].dtype)

    def _einsum(self, node: ast.Call, given: list[Shape | None]) -> Shape | None:
        text = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else None
        if not isinstance(text, str) or "->" not in text or "." in text or None in given:
            return None
        inputs, output = text.replace(" ", "").split("->")
        sizes: dict[str, int] = {}
        for letters, shape in zip(inputs.split(","), given, strict=False):
            if shape is None or len(letters) != len(shape.sizes):
                return None
            sizes |= dict(zip(letters, shape.sizes, strict=True))
        known = all(letter in sizes for letter in output) and given[0] is not None
        return Shape(tuple(sizes[item] for item in output), given[0].dtype) if known and given[0] is not None else None

    def _item(self, node: ast.Subscript, levels: int) -> Shape | None:
        """`a[:, None]`, `a[None]`, `a[..., None]`, `a[0]`."""
        owner = self.of(node.value, levels - 1)
        if owner is None:
            return None
        keys = [*node.slice.elts] if isinstance(node.slice, ast.Tuple) else [node.slice]
        takes = sum(not _is_new(item) and not _is_rest(item) for item in keys)
        sizes, rest = [*owner.sizes], len(owner.sizes) - takes
        if rest < 0:
            return None
        found: list[int] = []
        for item in keys:
            if _is_new(item):
                found.append(1)
            elif _is_rest(item):
                found += sizes[:rest]
                sizes, rest = sizes[rest:], 0
            elif isinstance(item, ast.Slice) and item.lower is None and item.upper is None and item.step is None:
                found.append(sizes.pop(0))
            elif whole(item) is not None:
                sizes.pop(0)
            else:
                return None
        return Shape((*found, *sizes), owner.dtype)


def broadcast(one: Shape | None, other: Shape | None) -> Shape | None:
    """None where they do not fit."""
    if one is None or other is None:
        return None
    rank = max(len(one.sizes), len(other.sizes))
    left, right = ((*([1] * (rank - len(item.sizes))), *item.sizes) for item in (one, other))
    if any(first != second and 1 not in (first, second) for first, second in zip(left, right, strict=True)):
        return None
    sizes = tuple(second if first == 1 else first for first, second in zip(left, right, strict=True))
    return Shape(sizes, _type(one, other))


def _type(one: Shape, other: Shape) -> str:
    """Nothing where it takes more to know it."""
    if one.dtype == other.dtype:
        return one.dtype
    tensors = [item for item in (one, other) if item.sizes]
    if len(tensors) == 1 and tensors[0].dtype.startswith("float"):
        return tensors[0].dtype
    floats = [item.dtype for item in (one, other) if item.dtype.startswith(("float", "bfloat"))]
    return floats[0] if len(floats) == 1 and len(tensors) == _PLANE and one.dtype and other.dtype else ""


def _matrices(one: Shape | None, other: Shape | None) -> Shape | None:
    if one is None or other is None or len(one.sizes) < _PLANE or len(other.sizes) < _PLANE:
        return None
    if one.sizes[-1] != other.sizes[-2]:
        return None
    many = broadcast(Shape(one.sizes[:-2], one.dtype), Shape(other.sizes[:-2], other.dtype))
    return Shape((*many.sizes, one.sizes[-2], other.sizes[-1]), _type(one, other)) if many is not None else None


def _reshaped(first: Shape, numbers: list[int]) -> Shape | None:
    rest = math.prod(item for item in numbers if item != -1)
    if numbers.count(-1) > 1 or (-1 in numbers and (rest <= 0 or first.elements % rest)):
        return None
    sizes = tuple(first.elements // rest if item == -1 else item for item in numbers)
    return Shape(sizes, first.dtype) if math.prod(sizes) == first.elements else None


def _is_library(node: ast.AST) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) in _LIBRARIES


def _is_new(node: ast.AST) -> bool:
    return is_none(node) or (isinstance(node, ast.Attribute) and node.attr == "newaxis")


def _is_rest(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis
