"""Modules that the program made: which class is called, and which forward() that runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import class_named, parameters


def module_class(tree: ast.Module, function: ast.expr) -> str | None:
    """`CTCLoss` of `criterion` where the file says `criterion = nn.CTCLoss()`, and calls nothing else by that name."""
    name = variable(function)
    made = {ast.unparse(value.func) for value in _values(tree, name)} if name is not None else set()
    return made.pop().rpartition(".")[2] if len(made) == 1 else None


def construction(tree: ast.Module, function: ast.expr) -> ast.Call | None:
    """`nn.EmbeddingBag(10, 4)` of `self.bag` where the file makes it at one place only."""
    name = variable(function)
    made = list(_values(tree, name)) if name is not None else []
    return made[0] if len(made) == 1 else None


def forward_of(tree: ast.Module, call: ast.Call) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The forward() that `model(...)` runs, where the class of `model` is one of the file's."""
    name = module_class(tree, call.func)
    owner = class_named(tree, name) if name is not None else None
    methods = [item for item in (owner.body if owner is not None else ()) if isinstance(item, ast.FunctionDef)]
    found = next((item for item in methods if item.name == "forward"), None)
    return found if found is not None and parameters(found)[:1] == ["self"] else None


def _values(tree: ast.Module, name: str) -> Iterator[ast.Call]:
    """What is assigned to it, without `.to(device)` and the like; nothing where one is no call."""
    values = [
        _innermost(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and any(variable(item) == name for item in node.targets)
    ]
    calls = [item for item in values if isinstance(item, ast.Call)]
    return iter(calls if len(calls) == len(values) else ())


def _innermost(value: ast.expr) -> ast.expr:
    """`Net()` of `Net().to(device).train()`."""
    while (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and isinstance(value.func.value, ast.Call)
    ):
        value = value.func.value
    return value
