"""Modules that the program made: which class is called, and which forward() that runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.lifetime.variables import python_frames
from pytracer.analyze.evidence.syntax.calls import calls_on
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_named, parameters
from pytracer.analyze.parts import python_frame
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import PythonFrame

_OF_MODULE = "torch/nn/modules/module.py"


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


def called_module(view: ProcessView, frame: PythonFrame) -> str | None:
    """`self.conv1`, where the program's line calls one module, with only Module.__call__() between that and a frame."""
    frames = [*python_frames(view)]
    behind = frames[frames.index(frame) + 1 :]
    own = next((item for item in behind if not is_library_file(item.file)), None)
    if own is None or own.line is None:
        return None
    if not all((item.file or "").endswith(_OF_MODULE) for item in behind[: behind.index(own)]):
        return None
    tree = syntax_tree(view.process.snapshot, python_frame(own))
    calls = calls_on(tree, own.line) if tree is not None else []
    made = {item.id for node in nodes_of(tree) for item in _defined(node)} if tree is not None else set()
    names = {name for item in calls if (name := variable(item.func)) is not None and name not in made}
    return names.pop() if len(names) == 1 else None


def _defined(node: ast.AST) -> Iterator[ast.Name]:
    """Functions, classes and what is imported: no modules that are called."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield ast.Name(node.name)
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (ast.Name(item.asname or item.name) for item in node.names)


def _values(tree: ast.Module, name: str) -> Iterator[ast.Call]:
    """What is assigned to it, without `.to(device)` and the like; nothing where one is no call."""
    values = [
        _innermost(node.value)
        for node in nodes_of(tree)
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
