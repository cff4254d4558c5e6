"""Expressions with the number of the rank itself, as programs call it."""

from __future__ import annotations

import ast
import re

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.names import variable

_RANK = re.compile(
    r"(?:(?:global|local|node|group|data_parallel|dp|my|proc|process|worker|trainer)_)?rank|get_(?:\w+_)?rank"
    r"|is_(?:main|master)\w*|main_process|process_index"
)


def is_rank(node: ast.AST) -> bool:
    """`rank`, `self.local_rank`, `dist.get_rank()`, `is_main_process()`; not `lora_rank`."""
    name = variable(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
    if isinstance(node, ast.Attribute) and name is None:
        name = node.attr
    if isinstance(node, ast.Call):
        name = called_name(node)
    return name is not None and _RANK.fullmatch(name.rpartition(".")[2].lstrip("_")) is not None


def is_of_rank(node: ast.AST) -> bool:
    """Whether the rank is in an expression."""
    return any(is_rank(item) for item in ast.walk(node))


def rank_branch(tree: ast.Module, line: int) -> ast.If | None:
    """The closest `if` on the rank around a line."""
    return next((item for item, around in deciding_ifs(tree, line) if around and is_of_rank(item.test)), None)
