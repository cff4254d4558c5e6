"""What the expressions of the failing line allocate, and of which operands, by the recorded shapes of its variables."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Literal

import msgspec

from pytracer.analyze.evidence.failing.expressions import parts
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import Shape
from pytracer.analyze.evidence.failing.tensors.result_shapes import MATRICES, PAIRED, SIZED, Shapes, broadcast
from pytracer.analyze.evidence.syntax.calls import called_name

Kind = Literal["broadcast", "matrices", "pairs", "sizes"]
_PAIRS = frozenset(("cdist", "outer", "ger"))
_OF_NUMBERS = frozenset((*SIZED, "one_hot", "repeat", "tile"))
_TWO = 2


class Result(msgspec.Struct, frozen=True):
    """A new tensor of these sizes, and the operands that it is made of."""

    node: ast.expr
    sizes: tuple[int, ...]
    kind: Kind
    operands: tuple[tuple[ast.expr, Shape], ...] = ()


def results_of(at: FailingLine) -> Iterator[Result]:
    """Of the failing expression and those inside of it, the innermost first."""
    shapes = Shapes(at)
    for node in (item for part in (parts(at.node) if at.node is not None else ()) for item in _expressions(part)):
        found = _result(at, shapes, node)
        if found is not None:
            yield found


def _expressions(node: ast.AST | None) -> Iterator[ast.expr]:
    for inner in ast.iter_child_nodes(node) if node is not None else ():
        if not isinstance(inner, (ast.stmt, ast.Lambda)):
            yield from _expressions(inner)
    if isinstance(node, ast.expr):
        yield node


def _result(at: FailingLine, shapes: Shapes, node: ast.expr) -> Result | None:
    kind = _kind(node)
    if kind is None:
        return None
    known = [(item, found) for item in shapes.operands(node) if (found := shapes.of(item)) is not None]
    held = tuple((item, found) for item, found in known if found.sizes or at.shape(item) is not None)  # no numbers
    made = shapes.of(node)
    if kind == "sizes":
        name = called_name(node) if isinstance(node, ast.Call) else None
        return Result(node, made.sizes, kind, () if name in SIZED else held[:1]) if made is not None else None
    if len(held) != _TWO:
        return None
    if made is None and kind == "broadcast":  # a function of the program's, or one that is not known
        made = broadcast(held[0][1], held[1][1])
    return Result(node, made.sizes, kind, held) if made is not None else None


def _kind(node: ast.expr) -> Kind | None:
    """How the sizes of the result come about; None of what allocates nothing, or is not known."""
    if isinstance(node, ast.BinOp):
        return "matrices" if isinstance(node.op, ast.MatMult) else "broadcast"
    if isinstance(node, ast.Compare) and len(node.comparators) == 1:
        return "broadcast"
    name = called_name(node) if isinstance(node, ast.Call) else None
    if name is None or not isinstance(node, ast.Call):
        return None
    if name in _OF_NUMBERS:
        return "sizes"
    if name in MATRICES:
        return "matrices"
    if name in _PAIRS:
        return "pairs"
    return "broadcast" if name in PAIRED or len(node.args) in (1, _TWO) else None
