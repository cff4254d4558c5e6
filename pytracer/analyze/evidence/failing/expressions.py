"""Expressions of the program: as text, the variables that they read, and what they come to."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from pytracer._text import shortened
from pytracer.analyze.evidence.slicing.spots import Made
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_LONGEST = 44
_SMALL = 1 << 16
_MOST_SHIFT = 40
_SMALL_POWER = 4
_UNIT, _UNIT_POWER = 1024, 40  # 2**20, 10**9


def source(node: ast.AST) -> str:
    """An expression as text."""
    return short(ast.unparse(node))


def short(text: str) -> str:
    """Of one line."""
    return shortened(" ".join(text.split()), _LONGEST)


def expression_at(tree: ast.AST, columns: Sequence[int]) -> ast.expr | None:
    """The one with that first line and column, last line and column, as CPython records those of an exception."""
    found = (item for item in nodes_of(tree) if isinstance(item, ast.expr))
    spans = ((item, [item.lineno, item.col_offset, item.end_lineno, item.end_col_offset]) for item in found)
    return next((item for item, span in spans if span == [*columns]), None)


def names_in(node: ast.AST) -> list[str]:
    """Its variables in order, each once; what is only called is none."""
    called = {id(item.func) for item in nodes_of(node) if isinstance(item, ast.Call)}
    found: dict[str, None] = {}
    for item in walk_in_order(node):
        name = variable(item) if id(item) not in called else None
        if name is not None and name != "self":
            found[name] = None
    return [*found]


def walk_in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Depth first."""
    yield node
    for item in ast.iter_child_nodes(node):
        yield from walk_in_order(item)


def parts(node: ast.AST) -> list[ast.AST]:
    """Of a loop or branch the head without the body."""
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return [node.iter]
    if isinstance(node, (ast.If, ast.While)):
        return [node.test]
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return [*node.items]
    return [node]


def whole(node: ast.AST) -> int | None:
    """`-1` is an operation on 1."""
    try:
        number = ast.literal_eval(node) if isinstance(node, ast.expr) else None
    except ValueError:
        return None
    return number if type(number) is int else None


def computed(operation: ast.operator, left: int, right: int) -> int | None:
    """The number that an operation makes of two; None where it is none of those that sizes are computed by."""
    if isinstance(operation, ast.Add):
        return left + right
    if isinstance(operation, ast.Sub):
        return left - right
    if isinstance(operation, ast.Mult):
        return left * right
    if isinstance(operation, ast.FloorDiv):
        return left // right if right else None
    if isinstance(operation, ast.LShift):
        return left << right if 0 <= right <= _MOST_SHIFT else None
    small = isinstance(operation, ast.Pow) and abs(left) < _SMALL and 0 <= right <= _SMALL_POWER
    small |= isinstance(operation, ast.Pow) and abs(left) <= _UNIT and 0 <= right <= _UNIT_POWER
    return int(left**right) if small else None


def as_written(found: Made) -> str:
    """With what names it: `heads=12`, `'heads': 12`, `x = f()`."""
    node = found.node
    for item in nodes_of(found.spot.tree):
        if isinstance(item, ast.Dict):
            for key, value in zip(item.keys, item.values, strict=True):
                if value is node and key is not None:
                    return f"{ast.unparse(key)}: {ast.unparse(node)}"
        elif isinstance(item, ast.keyword) and item.value is node and item.arg is not None:
            return f"{item.arg}={ast.unparse(node)}"
        elif (isinstance(item, (ast.Assign, ast.AnnAssign)) and item.value is node) or (
            isinstance(item, ast.Return) and item.value is node
        ):
            return ast.unparse(item)
        elif isinstance(item, ast.arguments):
            for argument, default in zip(item.args[::-1], item.defaults[::-1], strict=False):
                if default is node:
                    return f"{argument.arg}={ast.unparse(node)}"
    return ast.unparse(node)
