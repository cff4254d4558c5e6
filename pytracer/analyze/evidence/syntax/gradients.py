"""Tests of a program for gradients that are None."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.syntax.bindings import bound_value
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope

_GRADIENTS = ("grad", "main_grad")
_FROZEN = "requires_grad"


def is_gradient(node: ast.AST) -> bool:
    """`p.grad`, `getattr(p, "grad", None)`."""
    if isinstance(node, ast.Call) and called_name(node) == "getattr" and len(node.args) > 1:
        return isinstance(node.args[1], ast.Constant) and node.args[1].value in _GRADIENTS
    return isinstance(node, ast.Attribute) and node.attr in _GRADIENTS


def tested_for_none(test: ast.expr, *, absent: bool) -> Iterator[ast.expr]:
    """What of a test is `is not None`; `absent`: what is `is None`."""
    kind = ast.Is if absent else ast.IsNot
    for item in test.values if isinstance(test, ast.BoolOp) else [test]:
        if isinstance(item, ast.Compare) and isinstance(item.ops[0], kind) and is_none(item.comparators[0]):
            yield item.left.value if isinstance(item.left, ast.NamedExpr) else item.left


def gradient_tested(test: ast.expr, scope: Scope, line: int, *, absent: bool) -> bool:
    """Whether it asks for a gradient, itself or by a variable: `grad = p.grad` above `if grad is not None`."""
    for item in tested_for_none(test, absent=absent):
        name = variable(item)
        bound = bound_value(scope, name, line) if name is not None else None
        if is_gradient(item) or (bound is not None and bound[1] is not None and is_gradient(bound[1])):
            return True
    return False


def is_over_parameters(loop: ast.AST) -> bool:
    """Whether a loop goes through parameters: it reads the gradient of what it goes through."""
    if not isinstance(loop, (ast.For, ast.AsyncFor)):
        return False
    names = {item.id for item in nodes_of(loop.target) if isinstance(item, ast.Name)}
    return any(
        is_gradient(item) and isinstance(item, ast.Attribute) and variable(item.value) in names
        for item in nodes_of(loop)
    )


def asks_if_frozen(test: ast.expr) -> bool:
    """`p.requires_grad`."""
    return any(isinstance(item, ast.Attribute) and item.attr == _FROZEN for item in nodes_of(test))


def lines_that_freeze(tree: ast.Module) -> list[int]:
    """`p.requires_grad_(False)`, `p.requires_grad = False`, in order; not those that can only thaw."""
    found = set[int]()
    for item in nodes_of(tree):
        if isinstance(item, ast.Call) and called_name(item) == f"{_FROZEN}_":
            given = passed_values(item)  # requires_grad_() without any thaws
            found |= {item.lineno} if given and not _is_true(given[0]) else set()
        elif isinstance(item, ast.Assign) and not _is_true(item.value):
            set_ = (part for part in item.targets if isinstance(part, ast.Attribute) and part.attr == _FROZEN)
            found |= {part.lineno for part in set_}
    return sorted(found)


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and bool(node.value)
