"""What a name of a program means: the class or function that one of its files defines, also where it is imported."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

from msgspec import structs

from pytracer.analyze.evidence.slicing.spots import END, Spot
from pytracer.analyze.evidence.syntax.reaching import places_that_bind
from pytracer.analyze.evidence.syntax.scopes import parameters
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame


def defined(snapshot: Snapshot, node: ast.AST, spot: Spot) -> tuple[ast.AST, Spot] | None:
    """The class or function, in its own file; None where the name may mean several things, or a library's."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        module = _module(snapshot, node.value.id, spot)
        return defined(snapshot, ast.Name(node.attr), module) if module is not None else None
    if not isinstance(node, ast.Name):
        return None
    named = [item for item in spot.tree.body if getattr(item, "name", None) == node.id]
    if len(named) > 1 or (named and len(places_that_bind(spot.tree, node.id)) > 1):
        return None  # which of them is meant is not known
    for item in spot.tree.body:
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and item.name == node.id:
            return item, structs.replace(spot, scope=spot.tree, line=END, depth=None, call=None)
        if isinstance(item, ast.ImportFrom) and item.level <= 1 and spot.file is not None and item.module:
            found = next((part for part in item.names if (part.asname or part.name) == node.id), None)
            other = _imported(snapshot, spot.file, item.module) if found is not None else None
            if found is not None and other is not None:
                return defined(snapshot, ast.Name(found.name), other)
    return None


def _module(snapshot: Snapshot, name: str, spot: Spot) -> Spot | None:
    """The program's file that the name of a module means: by `import blocks`, `from tools import blocks`."""
    within = spot.scope if not isinstance(spot.scope, ast.Module) else None
    if within is not None and (name in parameters(within) or places_that_bind(within, name)):
        return None
    if spot.file is None or len(places_that_bind(spot.tree, name)) != 1:
        return None
    found = next((path for item in spot.tree.body for path in _paths(item, name)), None)
    return _imported(snapshot, spot.file, found) if found is not None else None


def _paths(statement: ast.stmt, name: str) -> Iterator[str]:
    """What a statement imports by a name, as a module has it."""
    if isinstance(statement, ast.Import):
        yield from (item.name for item in statement.names if (item.asname or item.name) == name)
    elif isinstance(statement, ast.ImportFrom) and statement.level <= 1:
        above = f"{statement.module}." if statement.module else ""
        yield from (f"{above}{item.name}" for item in statement.names if (item.asname or item.name) == name)


def _imported(snapshot: Snapshot, file: str, module: str) -> Spot | None:
    path = f"{os.path.join(os.path.dirname(file), *module.split('.'))}.py"
    tree = syntax_tree(snapshot, PythonFrame(file=path, line=1))
    return Spot(path, tree, tree, END) if tree is not None else None
