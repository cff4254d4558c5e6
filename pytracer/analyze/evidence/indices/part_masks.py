"""Lines that leave out some numbers of a part of a compressed sparse tensor, so that the parts count differently.

By syntax: `w[w < sigma]` on the way to the values, and `self.col = self.col[mask]` of the plain indices.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

import msgspec
from msgspec import structs

from pytracer._text import shortened
from pytracer.analyze.evidence.indices.sparse_source import SparseSource
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.operators.filtered import condition_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, own_nodes, scope_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_QUOTED, _SHORT = 60, 40
_OF_SINGLE = frozenset({
    "exp", "log", "log1p", "sqrt", "rsqrt", "pow", "power", "square", "abs", "neg", "negative", "reciprocal", "sigmoid",
    "tanh", "relu", "clamp", "clip", "div", "divide", "mul", "multiply", "add", "sub", "subtract", "float", "double",
    "half", "to", "astype", "clone", "contiguous", "flatten", "ravel", "reshape", "view", "detach", "cpu", "numpy",
    "from_numpy", "as_tensor", "tensor", "asarray", "array", "ascontiguousarray",
})  # fmt: skip


class PartMask(msgspec.Struct, frozen=True):
    """`line` (of the file, `number`) keeps only what has `condition`. `text`: its statement."""

    file: str | None
    number: int
    line: LineWords
    condition: str
    text: str


def mask_of_values(view: ProcessView, source: SparseSource, text: str) -> PartMask | None:
    """In the expression that makes the values: outside of sums and of functions of the program."""
    back = Slice(view.process.snapshot, program_frames(view))
    node: ast.AST = ast.parse(text, mode="eval").body
    spot = structs.replace(source.spot, line=source.line)
    made = back.made(node, spot, calls=False) if _is_variable(node) else None
    if made is not None and made.node is not node:
        node, spot = made.node, structs.replace(made.spot, line=made.line)
    for item in _parts(node):
        condition = condition_of(back, item, spot)
        if condition is not None:
            return _mask(view, spot, node, condition)
    return None


def _parts(node: ast.AST) -> Iterator[ast.expr]:
    """An expression, and what its operators and functions of single numbers are given."""
    if not isinstance(node, ast.expr):
        return
    yield node
    inner: list[ast.expr] = []
    if isinstance(node, ast.BinOp):
        inner = [node.left, node.right]
    elif isinstance(node, ast.UnaryOp):
        inner = [node.operand]
    elif isinstance(node, ast.Call) and called_name(node) in _OF_SINGLE:
        inner = [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
    for item in inner:
        yield from _parts(item)


def _mask(view: ProcessView, spot: Spot, node: ast.AST, condition: ast.expr) -> PartMask:
    return PartMask(
        spot.file,
        spot.line,
        place_of(view, spot.file, spot.line),
        shortened(ast.unparse(condition), _SHORT),
        shortened(ast.unparse(node), _QUOTED),
    )


def cut_of_indices(view: ProcessView, source: SparseSource, text: str, pointers: str) -> PartMask | None:
    """The only line that sets the plain indices from themselves by a mask or a slice: `self.col = self.col[mask]`.

    Of an attribute of `self` in any method of the class; of a variable in the constructor's function, above its line.
    None where its function sets the pointers after it: these are counted without what it left out.
    """
    tree, scope = source.spot.tree, source.spot.scope
    owner = class_around(tree, scope) if text.startswith("self.") else None
    within = nodes_of(owner) if owner is not None else own_nodes(scope)
    back = Slice(view.process.snapshot, program_frames(view))
    found = []
    for item in within:
        if not isinstance(item, ast.Assign) or (owner is None and item.lineno >= source.line):
            continue
        around = scope_of(tree, item.lineno)
        condition = _cut(back, item, text, Spot(source.spot.file, tree, around, item.lineno))
        if condition is not None and not _is_set_after(around, pointers, item.lineno):
            found.append(_mask(view, structs.replace(source.spot, line=item.lineno), item, condition))
    return found[0] if len(found) == 1 else None


def _cut(back: Slice, item: ast.Assign, text: str, spot: Spot) -> ast.expr | None:
    """What it keeps, of `x = x[mask]`, `x = x[:n]`, and of a tuple of such."""
    pairs = [(target, item.value) for target in item.targets]
    if isinstance(item.value, ast.Tuple):
        pairs = [
            pair
            for target in item.targets
            if isinstance(target, ast.Tuple)
            for pair in zip(target.elts, item.value.elts, strict=False)
        ]
    for target, value in pairs:
        if ast.unparse(target) != text:
            continue
        if isinstance(value, ast.Subscript) and ast.unparse(value.value) == text and _is_part(value.slice):
            return value.slice
        condition = condition_of(back, value, spot)
        if condition is not None and any(ast.unparse(one) == text for one in nodes_of(value) if _is_variable(one)):
            return condition
    return None


def _is_set_after(scope: Scope, text: str, line: int) -> bool:
    """Whether a variable or attribute is set at that line or below."""
    return any(
        _is_variable(item) and isinstance(item.ctx, ast.Store) and item.lineno >= line and ast.unparse(item) == text
        for item in own_nodes(scope)
    )


def _is_part(index: ast.expr) -> bool:
    """`:n` and `k:`, without a step: `::-1` leaves out nothing."""
    return isinstance(index, ast.Slice) and index.step is None and (index.lower is not None or index.upper is not None)


def _is_variable(node: ast.AST) -> TypeGuard[ast.Name | ast.Attribute]:
    return isinstance(node, (ast.Name, ast.Attribute))
