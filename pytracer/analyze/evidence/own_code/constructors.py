"""Which class of a library checks in its constructor that an argument is no 0: `num_heads` of MultiheadAttention."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import ORDERS
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_named, own_nodes
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import PythonFrame, Snapshot
from pytracer.report import job as r

_MOST_BASES = 4
_DIVIDES = (ast.Mod, ast.FloorDiv)


class ConstructorReader:
    """Of the class whose method a frame runs, by its file and those beside it that it imports from."""

    def __init__(self, snapshot: Snapshot, tree: ast.Module, frame: PythonFrame) -> None:
        self._snapshot = snapshot
        self._tree = tree
        self._owner = (frame.function or "").rpartition(".")[0]
        self._folder = os.path.dirname(frame.file)

    def checked_by(self, expression: str) -> str | None:
        """The class that `self.self_attn` is made of, where its `__init__` compares `num_heads` or divides by it."""
        tree, owner = self._tree, self._owner
        *members, attribute = expression.split(".")[1:]
        for member in members:
            name = _made_of(tree, owner, member)
            other = self._defining(tree, name) if name is not None else None
            if name is None or other is None:
                return None
            tree, owner = other, name
        for _ in range(_MOST_BASES):
            made = class_named(tree, owner)
            if made is None:
                return None
            if any(_checks(item, attribute) for item in _constructor(made)):
                return owner
            if len(made.bases) != 1 or not isinstance(made.bases[0], ast.Name):
                return None
            owner = made.bases[0].id
        return None

    def _defining(self, tree: ast.Module, name: str) -> ast.Module | None:
        if class_named(tree, name) is not None:
            return tree
        for item in tree.body:
            if not isinstance(item, ast.ImportFrom) or item.level != 1 or not item.module:
                continue
            if any((part.asname or part.name) == name for part in item.names):
                path = f"{os.path.join(self._folder, *item.module.split('.'))}.py"
                return syntax_tree(self._snapshot, r.PythonFrame(function=None, file=path, line=1))
        return None


def _made_of(tree: ast.Module, owner: str, member: str) -> str | None:
    """`MultiheadAttention` of `self.self_attn = MultiheadAttention(...)`."""
    made = class_named(tree, owner)
    names = {
        called_name(item.value)
        for item in (nodes_of(made) if made is not None else ())
        if isinstance(item, ast.Assign) and isinstance(item.value, ast.Call)
        if any(ast.unparse(target) == f"self.{member}" for target in item.targets)
    }
    return names.pop() if len(names) == 1 else None


def _constructor(made: ast.ClassDef) -> Iterator[ast.AST]:
    for item in made.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            yield from own_nodes(item)


def _checks(item: ast.AST, name: str) -> bool:
    """`num_heads <= 0`, `embed_dim % num_heads`."""
    if isinstance(item, ast.BinOp):
        return isinstance(item.op, _DIVIDES) and isinstance(item.right, ast.Name) and item.right.id == name
    if not isinstance(item, ast.Compare) or not all(isinstance(op, ORDERS) for op in item.ops):
        return False
    return any(isinstance(part, ast.Name) and part.id == name for part in (item.left, *item.comparators))
