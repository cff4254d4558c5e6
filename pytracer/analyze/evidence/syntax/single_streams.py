"""A class whose `__iter__` gives one and the same iterator each time: after the first pass over it, there is no item.

`self.stream = (load(p) for p in paths)` in the constructor, and `return self.stream`.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, keyword_value
from pytracer.analyze.evidence.syntax.constants import is_true
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_STREAMS = frozenset({"iter", "map", "zip", "filter", "enumerate", "islice", "chain"})
_MAKERS = ("__init__",)
_WORKERS = 5  # of DataLoader()
_ENDLESS = frozenset({"cycle", "count", "repeat"})


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


def stream_of_loader(tree: ast.Module, made: ast.Call | None) -> SingleStream | None:
    """Of the data set of a DataLoader, `made` or the only one of the file.

    Workers are forked for each pass with an iterator that nobody used: None where it may have some.
    """
    found = single_stream(tree)
    if found is None:
        return None
    loaders = [item for item in nodes_of(tree) if isinstance(item, ast.Call) and called_name(item) == "DataLoader"]
    loader = made if made is not None else loaders[0] if len(loaders) == 1 else None
    given = argument_at(loader, 0, "dataset") if loader is not None else None
    if loader is None or given is None or any(item.arg is None for item in loader.keywords):
        return None
    workers = argument_at(loader, _WORKERS, "num_workers")
    alone = workers is None or (isinstance(workers, ast.Constant) and workers.value == 0)
    kept = keyword_value(loader, "persistent_workers")
    if not alone and (kept is None or not is_true(kept)):
        return None
    values: list[ast.AST | None] = [given]
    if isinstance(given, (ast.Name, ast.Attribute)):
        name = variable(given)
        values = [value for item in nodes_of(tree) for target, value in set_by(item) if variable(target) == name]
    of_owner = [isinstance(item, ast.Call) and called_name(item) == found.owner for item in values]
    return found if of_owner and all(of_owner) else None


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
    elsewhere = [target for item in nodes_of(tree) for target, _ in set_by(item) if _is_attribute(target, value)]
    if len(elsewhere) != 1:  # another line may set it anew for each pass
        return None
    if len(sets) != 1 or getattr(sets[0][2], "name", "") not in _MAKERS or not _is_iterator(tree, sets[0][1]):
        return None
    return SingleStream(owner.name, name, sets[0][0].lineno, returns[0].lineno)  # type: ignore[attr-defined]


def _is_attribute(target: ast.AST, value: ast.AST | None) -> bool:
    return isinstance(target, ast.Attribute) and isinstance(value, ast.Attribute) and target.attr == value.attr


def _method(owner: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((item for item in owner.body if isinstance(item, ast.FunctionDef) and item.name == name), None)


def _is_iterator(tree: ast.Module, value: ast.AST | None) -> bool:
    """Whether going through it uses it up: a generator, what iter() and map() give, a function that yields."""
    if isinstance(value, ast.GeneratorExp):
        return True
    if not isinstance(value, ast.Call):
        return False
    inner = [item for item in nodes_of(value) if isinstance(item, ast.Call)]
    if any(called_name(item) in _ENDLESS for item in inner):
        return False
    called = called_name(value)
    if isinstance(value.func, ast.Name) and called in _STREAMS:
        return True
    own = [item for item in nodes_of(tree) if isinstance(item, ast.FunctionDef) and item.name == called]
    if len(own) != 1 or any(isinstance(item, ast.While) and is_true(item.test) for item in own_nodes(own[0])):
        return False
    return any(isinstance(item, (ast.Yield, ast.YieldFrom)) for item in own_nodes(own[0]))
