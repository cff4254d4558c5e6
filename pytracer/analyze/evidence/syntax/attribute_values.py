"""What a variable or an attribute may have been given: by assignments, loops, properties and the bodies of classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_named, own_nodes

_PROPERTIES = ("property", "cached_property")
_HIGHEST = 4  # classes above one


def values_of(scope: ast.AST, name: str) -> Iterator[ast.expr]:
    """What its lines bind a variable to, or what it goes through; of a class, those of its methods."""
    nodes = nodes_of(scope) if isinstance(scope, ast.ClassDef) else own_nodes(scope)
    for item in nodes:
        yield from (value for target, value in set_by(item) if value is not None and variable(target) == name)
        if isinstance(item, (ast.For, ast.AsyncFor)) and variable(item.target) == name:
            yield item.iter


def attribute_values(tree: ast.Module, owner: ast.ClassDef, name: str, up: int = _HIGHEST) -> Iterator[ast.expr]:
    """What methods set an attribute to, a property of that name returns, or the class has for it.

    Where it has none, what the classes of the file have that it is derived from.
    """
    own = [*_own_values(owner, name)]
    yield from own
    for base in owner.bases if not own else ():
        above = class_named(tree, base.id) if isinstance(base, ast.Name) and up else None
        if above is not None:
            yield from attribute_values(tree, above, name, up - 1)


def _own_values(owner: ast.ClassDef, name: str) -> Iterator[ast.expr]:
    yield from values_of(owner, f"self.{name}")
    for item in owner.body:
        if isinstance(item, ast.FunctionDef) and item.name == name and is_property(item):
            returned = (part.value for part in own_nodes(item) if isinstance(part, ast.Return))
            yield from (value for value in returned if value is not None)
        elif isinstance(item, (ast.Assign, ast.AnnAssign)) and item.value is not None:
            targets = item.targets if isinstance(item, ast.Assign) else [item.target]
            if any(isinstance(part, ast.Name) and part.id == name for part in targets):
                yield item.value


def values_of_object(
    tree: ast.Module, scope: ast.AST, around: ast.ClassDef | None, node: ast.Attribute
) -> list[ast.expr]:
    """What `store.path` may be, of a class of the file: where the scope, or `around`, makes `store` by a call of it."""
    name = variable(node.value)
    if name is None:
        return []
    of_self = name.startswith("self.")
    made = [*values_of(around if of_self and around is not None else scope, name)]
    call = made[0] if len(made) == 1 else None
    called = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else None
    owner = class_named(tree, called) if called is not None else None
    return [*attribute_values(tree, owner, node.attr)] if owner is not None else []


def is_property(method: ast.FunctionDef) -> bool:
    """Whether it is called by its name alone."""
    return any(ast.unparse(item).rpartition(".")[2] in _PROPERTIES for item in method.decorator_list)
