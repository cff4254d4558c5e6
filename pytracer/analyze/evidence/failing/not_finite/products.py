"""A product that a loop multiplies again in each round, `x = step @ x`: it grows without a bound, or dies out."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.not_finite.hazard import Hazard
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans_body, statement_at

_PRODUCTS = frozenset({"matmul", "mm", "bmm", "mv"})
_MOST_ROUNDS = 8  # of a loop over a few things that are written out


def grown_by_product(node: ast.expr, spot: Spot) -> Hazard | None:
    """Of matrices, where nothing in the loop scales the product, and no layer or function is between the rounds."""
    factors = _factors(node)
    statement = statement_at(spot.tree, node.lineno)
    if not factors or not isinstance(statement, ast.Assign) or statement.value is not node:
        return None
    target = variable(statement.targets[0]) if len(statement.targets) == 1 else None
    others = [item for item in factors if variable(item) != target]
    if target is None or len(others) != len(factors) - 1:
        return None
    around = [item for item in own_nodes(spot.scope) if isinstance(item, LOOPS) and spans_body(item.body, node.lineno)]
    loop = max(around, key=lambda item: item.lineno, default=None)
    if loop is None or _is_short(loop) or len([*_settings(loop, target)]) != 1:
        return None
    says = (
        f"multiplies `{target}` by `{source(others[0])}` again in each round of the loop of line {loop.lineno}, which "
        "overflows to inf where the product grows"
    )
    make = (
        f"divide `{target}` by its norm in each round and add up the logarithms of the norms (or take a QR step), or "
        "compute the product in float64"
    )
    return Hazard(node, spot, says, make)


def _factors(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return [node.left, node.right]
    if isinstance(node, ast.Call) and called_name(node) in _PRODUCTS and isinstance(node.func, ast.Attribute):
        given = passed_values(node)
        return given if len(given) > 1 else [node.func.value, *given]
    return []


def _is_short(loop: ast.For | ast.AsyncFor | ast.While) -> bool:
    """Over a literal list, or a small number of rounds."""
    over = loop.iter if isinstance(loop, (ast.For, ast.AsyncFor)) else None
    if isinstance(over, (ast.Tuple, ast.List)):
        return len(over.elts) <= _MOST_ROUNDS
    given = over.args[-1] if isinstance(over, ast.Call) and called_name(over) == "range" and over.args else None
    return isinstance(given, ast.Constant) and isinstance(given.value, int) and given.value <= _MOST_ROUNDS


def _settings(loop: ast.AST, name: str) -> Iterator[ast.AST]:
    """What sets or changes the variable in the loop, its elements included; `x /= x.norm()` scales it."""
    for item in nodes_of(loop):
        targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
        flat = [part for target in targets if isinstance(target, ast.expr) for part in nodes_of(target)]
        if isinstance(item, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and any(variable(one) == name for one in flat):
            yield item
        called = item.func if isinstance(item, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr.endswith("_") and variable(called.value) == name:
            yield item
