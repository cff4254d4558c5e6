"""What a variable of the program is given first, or an attribute anywhere in its class."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, scope_of


def first_values(tree: ast.Module, node: ast.AST) -> list[ast.AST]:
    """What a function first gives a variable, or any method an attribute of `self`."""
    name, line = variable(node), getattr(node, "lineno", 0)
    if name is None:
        return []
    scope = scope_of(tree, line)
    of_class = class_around(tree, scope) if name.startswith("self.") else None
    bound = [found for part in _functions_of(of_class, scope) for found in bindings_of(part, name)]
    values = [(at, _part(value, part)) for at, value, part in bound if value is not None]
    values = values if of_class is not None else sorted(values, key=lambda item: item[0])[:1]
    return [value for _, value in values]


def _functions_of(owner: ast.ClassDef | None, scope: Scope) -> list[ast.AST]:
    """The methods of a class, or the function alone."""
    return [item for item in owner.body if isinstance(item, ast.FunctionDef)] if owner is not None else [scope]


def _part(value: ast.AST, part: int | None) -> ast.AST:
    if isinstance(value, (ast.Tuple, ast.List)) and part is not None and part < len(value.elts):
        return value.elts[part]
    return value
