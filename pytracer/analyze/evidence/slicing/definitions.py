"""What a name of a program means: the class or function that one of its files defines, also where it is imported."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import structs

from pytracer.analyze.evidence.slicing.spots import END, Spot
from pytracer.analyze.evidence.syntax.reaching import places_that_bind
from pytracer.analyze.evidence.syntax.scopes import parameters
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame


class _Module(NamedTuple):
    """`level`: 0 of an absolute import, 1 of `from .blocks import cut`."""

    name: str
    level: int


def defined(snapshot: Snapshot, node: ast.AST, spot: Spot, first: str | None = None) -> tuple[ast.AST, Spot] | None:
    """The class or function, in its own file; None where the name may mean several things, or a library's.

    `first`: the program's first file, in whose folder Python looks for what an absolute import names.
    """
    return _defined(snapshot, node, spot, first, frozenset())


def _defined(
    snapshot: Snapshot, node: ast.AST, spot: Spot, first: str | None, seen: frozenset[tuple[str | None, str]]
) -> tuple[ast.AST, Spot] | None:
    """`seen`: the names that led here, each with its file; files may import one from each other."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        module = _module(snapshot, node.value.id, spot, first)
        return _defined(snapshot, ast.Name(node.attr), module, first, seen) if module is not None else None
    if not isinstance(node, ast.Name) or (spot.file, node.id) in seen:
        return None
    named = [item for item in spot.tree.body if getattr(item, "name", None) == node.id]
    if len(named) > 1 or (named and len(places_that_bind(spot.tree, node.id)) > 1):
        return None  # which of them is meant is not known
    for item in spot.tree.body:
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and item.name == node.id:
            return item, structs.replace(spot, scope=spot.tree, line=END, depth=None, call=None)
        if isinstance(item, ast.ImportFrom) and item.level <= 1 and spot.file is not None and item.module:
            found = next((part for part in item.names if (part.asname or part.name) == node.id), None)
            of = _Module(item.module, item.level)
            other = _imported(snapshot, spot.file, of, first) if found is not None else None
            if found is not None and other is not None:
                return _defined(snapshot, ast.Name(found.name), other, first, seen | {(spot.file, node.id)})
    return None


def _module(snapshot: Snapshot, name: str, spot: Spot, first: str | None) -> Spot | None:
    """The program's file that the name of a module means: by `import blocks`, `from tools import blocks`."""
    within = spot.scope if not isinstance(spot.scope, ast.Module) else None
    if within is not None and (name in parameters(within) or places_that_bind(within, name)):
        return None
    if spot.file is None or len(places_that_bind(spot.tree, name)) != 1:
        return None
    found = next((path for item in spot.tree.body for path in _paths(item, name)), None)
    return _imported(snapshot, spot.file, found, first) if found is not None else None


def _paths(statement: ast.stmt, name: str) -> Iterator[_Module]:
    """What a statement imports by a name, as a module has it."""
    if isinstance(statement, ast.Import):
        yield from (_Module(item.name, 0) for item in statement.names if (item.asname or item.name) == name)
    elif isinstance(statement, ast.ImportFrom) and statement.level <= 1:
        above, level = f"{statement.module}." if statement.module else "", statement.level
        names = (item.name for item in statement.names if (item.asname or item.name) == name)
        yield from (_Module(f"{above}{item}", level) for item in names)


def _imported(snapshot: Snapshot, file: str, module: _Module, first: str | None) -> Spot | None:
    folder = os.path.dirname(file)
    if module.level == 0 and not _is_searched(folder, module.name, first):
        return None
    path = f"{os.path.join(folder, *module.name.split('.'))}.py"
    tree = syntax_tree(snapshot, PythonFrame(file=path, line=1))
    return Spot(path, tree, tree, END) if tree is not None else None


def _is_searched(folder: str, name: str, first: str | None) -> bool:
    """Whether an absolute import may mean a file there: no module of Python's own, no file of a package."""
    if name.partition(".")[0] in sys.stdlib_module_names:
        return False
    is_first = first is not None and os.path.dirname(first) == folder
    return is_first or not os.path.isfile(os.path.join(folder, "__init__.py"))
