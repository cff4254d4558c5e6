"""Tensors of two dtypes from one line of two ranks: the lines that make it, of which one makes the type of one rank.

Followed back through what leaves the type as it is, and through each way that a function of the program returns.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer.analyze.behind import Place
from pytracer.analyze.collectives.sizes import Side, passed_tensor
from pytracer.analyze.collectives.ways import way_to
from pytracer.analyze.evidence.failing.expressions import as_written, short
from pytracer.analyze.evidence.slicing.by_rank import before
from pytracer.analyze.evidence.slicing.element_types import element_type, keeps_type
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import line_in

_MOST = 40


class DifferingType(msgspec.Struct, frozen=True):
    """What made it, on the two ways; `lines` show that."""

    advice: str
    places: tuple[Place, ...]


def differing_type(first: Side, second: Side) -> DifferingType | None:
    """None where not exactly two expressions can have made what the line passes, or none of them shows its type."""
    dtypes = {call.dtype: view.process.rank for view, call in (first, second)}
    for view, call in (first, second):
        passed = passed_tensor(view, call)
        frames = way_to(view, call)[::-1]
        back = Slice(view.process.snapshot, frames)
        makers = [*_makers(back, *passed)] if passed is not None else []
        types = [element_type(back, item.node, item.spot) for item in makers]
        if len(makers) == 2 and types[0] != types[1] and any(item in dtypes for item in types):
            return _words(makers, types, dtypes, frames[0].file)
    return None


def _words(
    makers: list[Made], types: list[str | None], dtypes: dict[str | None, int | None], here: str | None
) -> DifferingType:
    known = 0 if types[0] in dtypes else 1
    one, other = makers[known], makers[1 - known]
    kind, wanted = types[known] or "", next(item for item in dtypes if item != types[known])
    lines = [line_in(item.spot.file, item.line, here) for item in (one, other)]
    return DifferingType(
        f"What {lines[0]} (`{short(as_written(one))}`) makes is {kind}, as rank {dtypes[kind]} passed; the other way "
        f"to make it is {lines[1]} (`{short(as_written(other))}`). Give both one dtype: `.to(torch.{wanted})` at the "
        "first.",
        tuple((item.spot.file, item.line) for item in (one, other) if item.spot.file is not None),
    )


def _makers(back: Slice, node: ast.AST, spot: Spot) -> Iterator[Made]:
    """The expressions furthest back that have the type, on each way."""
    waiting, seen = [(node, spot)], set[tuple[int, str]]()
    while waiting and len(seen) < _MOST:
        made = back.made(*waiting.pop(0), calls=False)
        key = (made.line, ast.unparse(made.node))
        if key in seen or not isinstance(made.node, ast.expr):
            continue
        seen.add(key)
        behind = [*_behind(back, made.node, made.spot)]
        waiting += behind
        if not behind:
            yield made


def _behind(back: Slice, node: ast.expr, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
    if isinstance(node, ast.IfExp):
        yield from ((item, spot) for item in (node.body, node.orelse))
    elif isinstance(node, (ast.Name, ast.Attribute)):
        yield from before(back, node, spot)
    elif isinstance(node, ast.Call):
        if back.function(node, spot) is not None:
            yield from ((item, at) for item, at in before(back, node, spot) if not _is_test(item, at.tree))
        elif keeps_type(node) and isinstance(node.func, ast.Attribute):
            yield node.func.value, spot


def _is_test(node: ast.AST, tree: ast.Module) -> bool:
    """Whether it is the condition of an `if`: which way is taken, and nothing that is returned."""
    return any(isinstance(item, ast.If) and item.test is node for item in nodes_of(tree))
