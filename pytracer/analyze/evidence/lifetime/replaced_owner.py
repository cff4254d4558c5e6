"""A variable that held the owner of memory, and that a line gave something else, so that the owner was collected.

`store = np.ndarray(shape, buffer=store.buf)` of `store = SharedMemory(...)`: the array takes the name of what its
memory belongs to, and does not keep that. `store = None` and `del store` do the same, while an array of it lives on.
A call of the program's own may have made, and dropped, another owner at that line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind, set_by, set_from_outside
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.reaching import ENTRY, reaching
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, is_parameter, own_nodes, scope_of
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_QUOTED = 60
_LIBRARIES = frozenset({"np", "numpy", "torch"})
_BUILTINS = frozenset({"memoryview", "bytes", "bytearray", "list", "tuple", "int", "len", "max", "min"})
_COPIES = frozenset({"array", "copy", "clone", "bytes", "bytearray", "tobytes", "tolist", "tensor", "deepcopy"})


class Replaced(msgspec.Struct, frozen=True):
    """`name` held the owner since `made`; `line` gives it `value`, or deletes it where that is None.

    `view`: `array` or `tensor`, where the value is one that has the owner's memory.
    """

    name: str
    made: LineWords
    text: str
    line: LineWords
    value: str | None
    view: str | None

    def summary(self, owner: str) -> str:
        """A clause, for the headline."""
        held = f"`{self.name}` ({self.made}: `{self.text}`) held the {owner} that owned it"
        if self.value is None:
            return f"{held}, which was collected when {self.line} deleted `{self.name}`"
        to = f"the {self.view} of its buffer" if self.view is not None else f"`{self.value}`"
        return f"{held}, which was collected when {self.line} set `{self.name}` anew, to {to}"

    def advice(self, owner: str, what: str) -> str:
        """What to keep. `what`: the tensor, or the array."""
        keep = f"keep the {owner} of {self.made} for as long as {what}, such as in an attribute"
        made = "a tensor" if self.view == "tensor" else "an array" if self.view is not None else "an array or tensor"
        why = f"{made} that is made of its buffer does not keep it"
        copy = "Or copy the data (clone(), copy()) before."
        if self.view is not None:
            return f"Give the {self.view} of {self.line} another name, and {keep}: {why}. {copy}"
        does = f"delete `{self.name}`" if self.value is None else f"set `{self.name}` anew"
        return f"Do not {does} at {self.line} while its memory is in use, but {keep}: {why}. {copy}"


def replaced_owner(view: ProcessView, tree: ast.Module, at: PythonFrame, makers: Sequence[str]) -> Replaced | None:
    """Of the line at which the owner was collected; None where another variable, or none, is known to have held it.

    Args:
        view: The process.
        tree: The module of that line.
        at: The line.
        makers: Calls that make such an owner.
    """
    if at.line is None:
        return None
    scope = scope_of(tree, at.line)
    found = [
        one
        for name, value in _given_up(scope, at.line)
        if (one := _held(view, tree, scope, at, name, value, makers)) is not None
    ]
    return found[0] if len(found) == 1 else None


def _given_up(scope: Scope, line: int) -> Iterator[tuple[str, ast.expr | None]]:
    """Variables that a line gives something else, with that; None where it deletes them."""
    for node in own_nodes(scope):
        if getattr(node, "lineno", None) != line:
            continue
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            for target, value in set_by(node):
                name = variable(target)
                if name is not None and value is not None:
                    yield name, value
        elif isinstance(node, ast.Delete):
            yield from ((name, None) for item in node.targets if (name := variable(item)) is not None)


def _held(
    view: ProcessView,
    tree: ast.Module,
    scope: Scope,
    at: PythonFrame,
    name: str,
    value: ast.expr | None,
    makers: Sequence[str],
) -> Replaced | None:
    """Where the only line that can have set the variable before made such an owner."""
    bound = _bound_before(tree, scope, name, at.line or 0)
    if bound is None or not isinstance(bound[1], ast.Call) or called_name(bound[1]) not in makers:
        return None
    line, made = bound
    if value is not None and not isinstance(value, ast.Constant) and not _is_made_of(tree, value, name):
        return None
    return Replaced(
        name,
        place_of(view, at.file, line),
        shortened(f"{name} = {ast.unparse(made)}", _QUOTED),
        place_of(view, at.file, at.line),
        shortened(ast.unparse(value), _QUOTED) if value is not None else None,
        _view(value, name) if value is not None else None,
    )


def _is_made_of(tree: ast.Module, value: ast.expr, name: str) -> bool:
    """Whether a value is made of the owner's buffer, by nothing but NumPy, torch, and methods of that."""
    parts = [*nodes_of(value)]
    buffers = [item.value for item in parts if isinstance(item, ast.keyword) and item.arg == "buffer"]
    whole = any(ast.unparse(item) == name for item in buffers)
    of_buffer = any(isinstance(item, ast.Attribute) and ast.unparse(item) == f"{name}.buf" for item in parts)
    calls = [item for item in parts if isinstance(item, ast.Call)]
    return (whole or of_buffer) and all(_is_of_library(tree, item.func, name) for item in calls)


def _is_of_library(tree: ast.Module, called: ast.expr, name: str) -> bool:
    """`np.ndarray`, `frombuffer` that is imported from NumPy, `store.buf.cast`, and methods of what these return."""
    if isinstance(called, ast.Attribute):
        if ast.unparse(called).startswith(f"{name}.buf."):
            return True
        owner = called.value.func if isinstance(called.value, ast.Call) else called.value
        return _is_of_library(tree, owner, name)
    if not isinstance(called, ast.Name):
        return False
    bound = lines_that_bind(tree, called.id)
    if not bound:
        return called.id in (_LIBRARIES | _BUILTINS) and not _is_defined(tree, called.id)
    return all(_imports(node, called.id) in _LIBRARIES for _, node in bound)


def _imports(node: ast.AST | None, name: str) -> str | None:
    """The package of `import numpy as np`, and of `from numpy import frombuffer`."""
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0] if not node.level else None
    names = node.names if isinstance(node, ast.Import) else []
    return next((item.name.partition(".")[0] for item in names if name in (item.asname, item.name)), None)


def _is_defined(tree: ast.Module, name: str) -> bool:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return any(isinstance(item, kinds) and item.name == name for item in nodes_of(tree))


def _bound_before(tree: ast.Module, scope: Scope, name: str, line: int) -> tuple[int, ast.AST] | None:
    around = class_around(tree, scope) if name.startswith("self.") else None
    scopes: list[Scope] = [scope]
    if around is not None:
        scopes = [item for item in around.body if isinstance(item, ast.FunctionDef)]
        if set_from_outside(tree, around, name.removeprefix("self.")):
            return None
    given = [(at, value) for one in scopes for at, value, _ in bindings_of(one, name)]
    if around is not None:
        places = {at for at, _ in given} - {line}
    else:
        places = {*(reaching(scope, name, line) or ())} - ({ENTRY} if not is_parameter(scope, name) else set())
    values = [(at, value) for at, value in given if at in places]
    return (values[0][0], values[0][1]) if len(places) == 1 == len(values) and values[0][1] is not None else None


def _view(value: ast.expr, name: str) -> str | None:
    """Whether a call makes an array or a tensor of the memory: of `store.buf`, or with `store` as its buffer."""
    calls = [item for item in nodes_of(value) if isinstance(item, ast.Call)]
    if not isinstance(value, ast.Call) or any(called_name(item) in _COPIES for item in calls):
        return None
    buffers = [item for call in calls for item in call.keywords if item.arg == "buffer"]
    of_name = any(ast.unparse(item.value) == name for item in buffers)
    of_buffer = any(isinstance(item, ast.Attribute) and ast.unparse(item) == f"{name}.buf" for item in nodes_of(value))
    if not of_name and not of_buffer:
        return None
    return "tensor" if ast.unparse(value.func).partition(".")[0] == "torch" else "array"
