"""Reads of an open file that a lock of several processes guards: its one place is then moved by one at a time."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import last_name, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_LOCKS = frozenset({"Lock", "RLock", "Semaphore", "BoundedSemaphore", "FileLock", "SoftFileLock", "InterProcessLock"})
_OF_THREADS = ("threading", "asyncio")
_MOVES = frozenset({"seek", "read", "readinto", "readline", "readlines", "read1"})


def read_under_lock(files: Iterable[ast.Module], name: str) -> bool:
    """Whether each call that reads or moves the file `name` (`self.file`) is inside of a `with` of such a lock."""
    trees = [*files]
    locks = {found for tree in trees for found in _locks(tree)}
    uses: list[ast.AST] = []
    guarded: set[int] = set()
    for tree in trees:
        made = _made_in(tree)
        for item in nodes_of(tree):
            if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr in _MOVES:
                uses += [item] if variable(item.func.value) == name and id(item) not in made else []
            if isinstance(item, ast.With) and any(last_name(part.context_expr) in locks for part in item.items):
                guarded |= {id(inner) for part in item.body for inner in nodes_of(part)}
    return bool(uses) and all(id(item) in guarded for item in uses)


def _locks(tree: ast.Module) -> Iterable[str]:
    """Names that are set to a lock which forked processes share; one of threading is copied."""
    threads = {
        alias.asname or alias.name
        for item in nodes_of(tree)
        if isinstance(item, ast.ImportFrom) and item.module in _OF_THREADS
        for alias in item.names
    }
    for item in nodes_of(tree):
        for target, value in set_by(item):
            if not isinstance(value, ast.Call) or called_name(value) not in _LOCKS:
                continue
            maker = ast.unparse(value.func)
            name = last_name(target)
            if name is not None and maker not in threads and not maker.startswith(_OF_THREADS):
                yield name


def _made_in(tree: ast.Module) -> set[int]:
    """The parts of methods that make an object, before there are workers."""
    made = (item for item in nodes_of(tree) if isinstance(item, ast.FunctionDef) and item.name == "__init__")
    return {id(inner) for item in made for inner in nodes_of(item)}
