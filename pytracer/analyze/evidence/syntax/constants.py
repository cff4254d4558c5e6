"""Numbers that a program writes down, and None."""

from __future__ import annotations

import ast
from typing import TypeGuard

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)  # comparisons that tell which of two is larger
_DEEPEST = 8
_MOST_SHIFT = 62
_LARGEST = 1 << 31  # of a float


def is_none(node: ast.AST | None) -> TypeGuard[ast.Constant]:
    """Whether a program writes `None` there."""
    return isinstance(node, ast.Constant) and node.value is None


def is_true(node: ast.AST | None) -> bool:
    """Whether a program writes `True` there."""
    return isinstance(node, ast.Constant) and node.value is True


def is_order(node: ast.AST) -> bool:
    """Whether it compares two, and tells which is larger."""
    return isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ORDERS)


def constant_number(node: ast.expr, tree: ast.Module, depth: int = _DEEPEST) -> int | None:
    """Of `10**6`, `1 << 20`, `int(1e6)`, `50 * 1000`, and of names that the module binds once."""
    if depth == 0:
        return None
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.Call) and called_name(node) == "int" and len(node.args) == 1:
        held = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
        if isinstance(held, float):
            return int(held) if abs(held) < _LARGEST else None
        return constant_number(node.args[0], tree, depth - 1)
    if isinstance(node, ast.Name):
        bound = [
            item for item in nodes_of(tree)
            if isinstance(item, ast.Name) and item.id == node.id and isinstance(item.ctx, ast.Store)
        ]  # fmt: skip
        parameters = any(isinstance(item, ast.arg) and item.arg == node.id for item in nodes_of(tree))
        made = [
            item.value for item in tree.body
            if isinstance(item, ast.Assign) and any(part is name for part in item.targets for name in bound)
        ]  # fmt: skip
        return constant_number(made[0], tree, depth - 1) if len(bound) == len(made) == 1 and not parameters else None
    if not isinstance(node, ast.BinOp):
        return None
    left, right = constant_number(node.left, tree, depth - 1), constant_number(node.right, tree, depth - 1)
    if left is None or right is None:
        return None
    if isinstance(node.op, ast.LShift) and 0 <= right <= _MOST_SHIFT:
        return left << right
    if isinstance(node.op, ast.Pow) and 0 <= right <= _MOST_SHIFT and abs(left) <= 1024:
        return int(left**right)
    return left * right if isinstance(node.op, ast.Mult) else None
