"""A request for much memory: the expression whose result is just as large, by the shapes of what it is made from."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer._text import size_words, uncapital
from pytracer.analyze.evidence.failing.expressions import names_in, source, whole
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.numbers import number_at
from pytracer.analyze.evidence.failing.recorded import Shape
from pytracer.analyze.evidence.failing.tensors.result_shapes import ALLOCATES, EXPANDS, PRODUCTS, SIZED, VIEWS, Shapes
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_ASKED = Pattern(r"you tried to allocate (\d{1,19}) bytes")
_ARRAY = Pattern(r"Unable to allocate .* for an array with shape \(([\d, ]+)\) and data type (\w+)")
_BYTES = {
    "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
    "bool": 1, "complex64": 8, "complex128": 16,
}  # fmt: skip
_GROWN = 4  # times as large as what it is made from
_ROWS = 1024
_PARTS = 100
_PLANE = 2
_MOST_NUMBERS = 3


class Requested(msgspec.Struct, frozen=True):
    """`subject`: for the headline; `advice`: what to change. `accidental`: no larger memory would be right."""

    subject: str
    advice: str
    accidental: bool
    nbytes: int | None = None


class _Wanted(msgspec.Struct, frozen=True):
    """What the message has: bytes, or the shape."""

    nbytes: int
    sizes: tuple[int, ...] | None
    words: str

    def is_of(self, shape: Shape) -> bool:
        """Whether the result has just this size; of an unknown type, with any that there is."""
        if self.sizes is not None:
            return shape.sizes == self.sizes
        each = [_BYTES[shape.dtype]] if shape.dtype in _BYTES else [1, 2, 4, 8]
        return self.nbytes in [shape.elements * item for item in each]


def requested(at: FailingLine) -> Requested | None:
    """None where no expression of the line makes so much of what is recorded."""
    wanted = _wanted(at.message)
    if wanted is None or at.node is None:
        return None
    shapes = Shapes(at)
    for node in _in_order(at.node, shapes):
        shape = shapes.of(node)
        if shape is None or not wanted.is_of(shape):
            continue
        found = _said(at, shapes, node, shape, wanted)
        if found is not None:
            return structs.replace(found, nbytes=wanted.nbytes)
    return None


def _wanted(message: str) -> _Wanted | None:
    asked, array = _ASKED.search(message), _ARRAY.search(message)
    if array is not None:
        sizes = tuple(int(item) for item in array[1].split(",") if item.strip())
        nbytes = math.prod(sizes) * _BYTES.get(array[2], 8)
        return _Wanted(nbytes, sizes, size_words(nbytes))
    return _Wanted(int(asked[1]), None, size_words(int(asked[1]))) if asked is not None else None


def _in_order(node: ast.AST, shapes: Shapes) -> Iterator[ast.expr]:
    """As it is computed: operands first."""
    for item in ast.iter_child_nodes(node):
        yield from _in_order(item, shapes)
    if isinstance(node, ast.Call):
        if called_name(node) in ALLOCATES or shapes.is_loss(node):
            yield node
    elif isinstance(node, (ast.BinOp, ast.Compare)):
        yield node


def _said(at: FailingLine, shapes: Shapes, node: ast.expr, shape: Shape, wanted: _Wanted) -> Requested | None:
    if isinstance(node, ast.Call) and called_name(node) in SIZED:
        return _sized(at, node, shape, wanted)
    operands = [(item, found) for item in shapes.operands(node) if (found := shapes.of(item)) is not None]
    spread = next(
        (item for item in nodes_of(node) if isinstance(item, ast.Call) and called_name(item) in EXPANDS), None
    )
    if spread is not None and isinstance(spread.func, ast.Attribute) and len(operands) <= 1:
        before = shapes.of(spread.func.value)
        return _expanded(at, node, spread.func.value, before, shape, wanted) if before is not None else None
    held = [found.elements for item, found in operands if not _is_view(at, item)]
    if not operands or shape.elements < _GROWN * max(held, default=0):
        return None
    name = called_name(node) if isinstance(node, ast.Call) else None
    matrices = name in PRODUCTS or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult))
    if matrices or len(operands) != 2 or all(found.sizes == shape.sizes for _, found in operands):
        return _product(at, node, operands, shape, wanted)
    return _broadcast(at, node, operands, shape, wanted)


def _is_view(at: FailingLine, node: ast.expr) -> bool:
    """An expanded tensor, which takes no memory of its size; also one that an earlier line expanded."""
    made = at.made(node, calls=False) if isinstance(node, (ast.Name, ast.Attribute)) else None
    inside = node if made is None else made.node
    return any(isinstance(item, ast.Call) and called_name(item) in VIEWS for item in nodes_of(inside))


def _broadcast(
    at: FailingLine, node: ast.expr, operands: list[tuple[ast.expr, Shape]], shape: Shape, wanted: _Wanted
) -> Requested:
    (left, one), (right, other) = operands
    words = f"`{source(left)}` {one.words} and `{source(right)}` {other.words} broadcast to {shape.words}"
    first, second = _came(at, left), _came(at, right)
    first = first if first != second else ""
    told = (
        f"`{source(left)}` {one.words}{first} and `{source(right)}` {other.words}{second} broadcast "
        f"to {shape.words}, the {wanted.words} that line {at.line} asks for"
    )
    paired = _pairs(left) or _pairs(right) or one.sizes == other.sizes[::-1]
    long, short = (right, left) if len(other.sizes) > len(one.sizes) else (left, right)
    many, few = (other, one) if long is right else (one, other)
    if many.sizes == (*few.sizes, 1) and not paired and not _pairs(_maker(at, long)):
        how = (
            f"Give both one shape: `{source(long)}.squeeze(-1)` {few.words}, or `{source(short)}.unsqueeze(-1)` "
            f"{many.words}. It is not memory that is short."
        )
        return Requested(words, f"{told}. {how}", accidental=True)
    if paired:
        return Requested(
            words, f"{told}: each is paired with every other. {_blocks(at, node, shape, wanted)}", accidental=False
        )
    blocks = uncapital(_blocks(at, node, shape, wanted))
    how = f"Give both the same shape; if each is to be paired with every other, {blocks}"
    return Requested(words, f"{told}. {how}", accidental=False)


def _maker(at: FailingLine, node: ast.expr) -> ast.AST:
    names = names_in(node)
    found = at.made(names[0]) if len(names) == 1 else None
    return found.node if found is not None else node


def _pairs(node: ast.AST) -> bool:
    """`a[:, None]`, `b.unsqueeze(0)`, `c.view(-1, 1)`: a dimension that was put there on purpose."""
    return any(
        is_none(item)
        or (
            isinstance(item, ast.Attribute)
            and item.attr in ("newaxis", "unsqueeze", "expand_dims", "view", "reshape", *EXPANDS)
        )
        or (isinstance(item, ast.keyword) and item.arg in ("keepdim", "keepdims"))
        for item in nodes_of(node)
    )


def _blocks(at: FailingLine, node: ast.expr, shape: Shape, wanted: _Wanted) -> str:
    """By rows of its first variable. `wanted.sizes`: of a NumPy array."""
    name = next((item for item in names_in(node) if at.shape(item) is not None), "x")
    own = at.shape(name)
    deep = own is not None and len(own.sizes) > _PLANE
    split = f"{name}.split({_ROWS}, dim=-2)" if deep else f"{name}.split({_ROWS})"
    split = f"np.array_split({name}, {_PARTS})" if wanted.sizes is not None else split
    words = f"Do it in blocks of rows (`for part in {split}: ...`), and reduce each (sum, min, topk) before the next."
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and len(shape.sizes) > _PLANE:
        less = Shape(shape.sizes[:-1], "").words
        cdist = "scipy.spatial.distance.cdist()" if wanted.sizes is not None else "torch.cdist()"
        return f"{words} Of distances, {cdist} makes only {less}, {size_words(wanted.nbytes // shape.sizes[-1])}."
    if deep and not isinstance(node, ast.Compare) and shape.sizes[-1] == shape.sizes[-2] and len(shape.sizes) > _PLANE:
        return f"{words} Attention: F.scaled_dot_product_attention() can do without that matrix."
    return words


def _product(
    at: FailingLine, node: ast.expr, operands: list[tuple[ast.expr, Shape]], shape: Shape, wanted: _Wanted
) -> Requested:
    what = source(node)
    of = " and ".join(f"`{source(item)}` {found.words}" for item, found in operands)
    lines = [_came(at, item) for item, _ in operands]
    after = [line if line not in lines[n + 1 :] else "" for n, line in enumerate(lines)]
    came = " and ".join(
        f"`{source(item)}` {found.words}{line}" for (item, found), line in zip(operands, after, strict=True)
    )
    words = f"`{what}` makes {shape.words} of {of}"
    told = f"`{what}` makes {shape.words}, the {wanted.words} that line {at.line} asks for, of {came}."
    if isinstance(node, ast.Call) and called_name(node) == "one_hot":
        how = (
            "Keep the numbers of the classes (an nn.Embedding and F.cross_entropy() take those), or make it for one "
            "batch at a time."
        )
        return Requested(words, f"{told} {how}", accidental=False)
    return Requested(words, f"{told} {_blocks(at, node, shape, wanted)}", accidental=False)


def _expanded(
    at: FailingLine, node: ast.expr, owner: ast.expr, before: Shape, shape: Shape, wanted: _Wanted
) -> Requested | None:
    if shape.elements < _GROWN * before.elements:
        return None
    name = f"`{source(owner)}` {before.words}"
    words = f"`{source(node)}` copies {name} out to {shape.words}"
    return Requested(
        words,
        f"`{source(node)}` copies {name}{_came(at, owner)} out to {shape.words}, the {wanted.words} that line "
        f"{at.line} asks for. Use it without the copy (an expanded view takes no memory), "
        "or in blocks.",
        accidental=False,
    )


def _sized(at: FailingLine, node: ast.Call, shape: Shape, wanted: _Wanted) -> Requested | None:
    """`torch.zeros(n, n)`; what the numbers are."""
    names = [name for item in node.args for name in names_in(item)]
    known = [
        f"`{name}` is {at.values.get(name) or number}{at.came(name)}"
        for name in dict.fromkeys(names)
        if (number := number_at(at, ast.parse(name, mode="eval").body)) is not None
    ][:_MOST_NUMBERS]
    if not known and all(whole(item) is None for item in node.args):
        return None
    words = f"`{source(node)}` is {shape.words}"
    numbers = f": {', '.join(known)}" if known else ""
    return Requested(
        words,
        f"`{source(node)}` is {shape.words}, the {wanted.words} that line {at.line} asks for{numbers}. Correct the "
        "size that is not meant; if all are, hold only a part of it at a time.",
        accidental=False,
    )


def _came(at: FailingLine, node: ast.expr) -> str:
    """The line that made it, of an expression with one variable."""
    names = names_in(node)
    return at.came(names[0]) if len(names) == 1 else ""
