"""What a variable or an attribute may have been given: by assignments, loops, properties and the bodies of classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_named, own_nodes

_PROPERTIES = ("property", "cached_property")
_MODULES = ("os", "osp", "np", "torch")
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

    Those of the classes of the file that it is derived from, too.
    """
    yield from values_of(owner, f"self.{name}")
    for item in owner.body:
        if isinstance(item, ast.FunctionDef) and item.name == name and _is_property(item):
            returned = (part.value for part in own_nodes(item) if isinstance(part, ast.Return))
            yield from (value for value in returned if value is not None)
        elif isinstance(item, (ast.Assign, ast.AnnAssign)) and item.value is not None:
            targets = item.targets if isinstance(item, ast.Assign) else [item.target]
            if any(isinstance(part, ast.Name) and part.id == name for part in targets):
                yield item.value
    for base in owner.bases:
        above = class_named(tree, base.id) if isinstance(base, ast.Name) and up else None
        if above is not None:
            yield from attribute_values(tree, above, name, up - 1)


def values_of_object(tree: ast.Module, node: ast.Attribute) -> list[ast.expr]:
    """What `store.path` may be: where one class of the file alone has such an attribute; `os.path` is none."""
    if isinstance(node.value, ast.Name) and node.value.id in {*_MODULES, *_imported(tree)}:
        return []
    found = [[*attribute_values(tree, item, node.attr, 0)] for item in nodes_of(tree) if isinstance(item, ast.ClassDef)]
    held = [values for values in found if values]
    return held[0] if len(held) == 1 else []


def _is_property(method: ast.FunctionDef) -> bool:
    return any(ast.unparse(item).rpartition(".")[2] in _PROPERTIES for item in method.decorator_list)


def _imported(tree: ast.Module) -> set[str]:
    found = (item for item in nodes_of(tree) if isinstance(item, (ast.Import, ast.ImportFrom)))
    return {(part.asname or part.name).partition(".")[0] for item in found for part in item.names}
