"""What a proof that all ranks do alike has to show, and where in the source that is."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import Scope, parents_of


class Unproven(Exception):
    """What all ranks may not have alike."""


class Value(msgspec.Struct, frozen=True):
    """To be the same on all ranks; `option`: as the object of the parsed command line that has it."""

    node: ast.AST
    spot: Spot
    option: str | None = None


class Reached(msgspec.Struct, frozen=True):
    """To be run by all ranks, and as often."""

    node: ast.AST
    spot: Spot


Obligation = Value | Reached


def function_around(tree: ast.Module, node: ast.AST) -> Scope:
    """Also of what stands on the line of its `def`."""
    around = above(node, tree, parents_of(tree))
    return next(
        (item for item in around if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))), tree
    )


def above(node: ast.AST, scope: ast.AST, parents: dict[ast.AST, ast.AST]) -> Iterator[ast.AST]:
    """What it stands in, up to its function, the innermost first."""
    above = parents.get(node)
    while above is not None and above is not scope:
        yield above
        above = parents.get(above)


def root_of(node: ast.AST) -> str | None:
    """`x` of `x[0]`, and of `x: int = 0`."""
    if isinstance(node, ast.Subscript):
        return root_of(node.value)
    if isinstance(node, ast.Assign):
        return root_of(node.targets[0])
    return root_of(node.target) if isinstance(node, ast.AnnAssign) else variable(node)
