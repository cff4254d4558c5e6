"""All nodes of a part of a program, walked once: the same trees are asked many questions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache


@lru_cache(maxsize=1 << 14)
def nodes_of(tree: ast.AST) -> tuple[ast.AST, ...]:
    """What ast.walk() gives, `tree` first. Trees are not changed once they are parsed: a copy is."""
    return tuple(ast.walk(tree))


def clauses_of(test: ast.expr) -> Iterator[ast.expr]:
    """The conditions that a test is made of by `and`, `or` and `not`."""
    if isinstance(test, ast.BoolOp):
        for item in test.values:
            yield from clauses_of(item)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from clauses_of(test.operand)
    else:
        yield test
