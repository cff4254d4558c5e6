"""All nodes of a part of a program, walked once: the same trees are asked many questions."""

from __future__ import annotations

import ast
from functools import lru_cache


@lru_cache(maxsize=1 << 14)
def nodes_of(tree: ast.AST) -> tuple[ast.AST, ...]:
    """What ast.walk() gives, `tree` first. Trees are not changed once they are parsed: a copy is."""
    return tuple(ast.walk(tree))
