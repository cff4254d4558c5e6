"""A class whose `__iter__` gives one and the same iterator each time: after the first pass over it, there is no item.

`self.stream = (load(p) for p in paths)` in the constructor, and `return self.stream`.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_STREAMS = frozenset({"iter", "map", "zip", "filter", "enumerate", "islice", "chain"})
_MAKERS = ("__init__",)


class SingleStream(msgspec.Struct, frozen=True):
    """`name` of `owner`: made at `made`, given back by `__iter__` at `given`."""

    owner: str
    name: str
    made: int
    given: int

    @property
    def words(self) -> str:
        """`Frames.__iter__ gives back `self.stream` (line 14), an iterator that line 11 makes once`."""
        return (
            f"{self.owner}.__iter__ gives back `{self.name}` (line {self.given}), an iterator that line {self.made} "
            "makes once: after the first pass it has no item left"
        )

    @property
    def advice(self) -> str:
        """To make it there."""
        return f"Make what line {self.made} makes in {self.owner}.__iter__ (line {self.given}), anew for each pass."


def single_stream(tree: ast.Module) -> SingleStream | None:
    """Of the only data set of a file that is gone through by `__iter__`."""
    owners = [item for item in nodes_of(tree) if isinstance(item, ast.ClassDef) and _method(item, "__iter__")]
    iters = [owner for owner in owners if any("IterableDataset" in ast.unparse(base) for base in owner.bases)]
    return _of_class(tree, iters[0]) if len(iters) == 1 else None


def _of_class(tree: ast.Module, owner: ast.ClassDef) -> SingleStream | None:
    getter = _method(owner, "__iter__")
    returns = [item for item in own_nodes(getter) if isinstance(item, ast.Return)] if getter is not None else []
    value = returns[0].value if len(returns) == 1 else None
    if isinstance(value, ast.Call) and called_name(value) == "iter" and len(value.args) == 1:
        value = value.args[0]
    name = variable(value) if isinstance(value, ast.Attribute) else None
    if name is None or not name.startswith("self."):
        return None
    sets = [
        (item, given, part)
        for part in owner.body
        for item in own_nodes(part)
        for target, given in set_by(item)
        if variable(target) == name
    ]
    if len(sets) != 1 or getattr(sets[0][2], "name", "") not in _MAKERS or not _is_iterator(tree, sets[0][1]):
        return None
    return SingleStream(owner.name, name, sets[0][0].lineno, returns[0].lineno)  # type: ignore[attr-defined]


def _method(owner: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == name), None)


def _is_iterator(tree: ast.Module, value: ast.AST | None) -> bool:
    """Whether going through it uses it up: a generator, what iter() and map() give, a function that yields."""
    if isinstance(value, ast.GeneratorExp):
        return True
    if not isinstance(value, ast.Call):
        return False
    called = called_name(value)
    if isinstance(value.func, ast.Name) and called in _STREAMS:
        return True
    own = [item for item in nodes_of(tree) if isinstance(item, ast.FunctionDef) and item.name == called]
    return len(own) == 1 and any(isinstance(item, (ast.Yield, ast.YieldFrom)) for item in own_nodes(own[0]))
