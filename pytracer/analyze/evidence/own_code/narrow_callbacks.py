"""A parameter of a callback that C gives an address, and that `CFUNCTYPE(...)` declares as a number of 32 bits."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec

from pytracer.analyze.evidence.own_code.declared_functions import NARROW, PROTOTYPES
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, parameters

_TAKES_ADDRESS = frozenset({"cast", "from_address", "c_void_p", "string_at", "memoryview_at"})


class NarrowCallback(msgspec.Struct, frozen=True):
    """`name`, parameter of `function`, is argument `place` (from 1) of `prototype`, which `line` declares as `kind`."""

    name: str
    function: str
    prototype: str
    kind: str
    place: int
    file: str
    line: int


def narrow_callback(files: Mapping[str, ast.Module], scope: Scope, line: int) -> NarrowCallback | None:
    """Of a parameter of a function that a line of it uses; None where no such prototype is given this function."""
    if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    names = [item for item in parameters(scope) if item not in ("self", "cls")]
    used = {item.id for item in _addresses(scope) if isinstance(item, ast.Name) and item.lineno == line}
    for file, prototype, call in _prototypes(files):
        if not any(_is_given(tree, prototype, scope.name) for tree in files.values()):
            continue
        for place, (name, kind) in enumerate(zip(names, call.args[1:], strict=False), 1):
            if name in used and last_name(kind) in NARROW:
                return NarrowCallback(name, scope.name, prototype, ast.unparse(kind), place, file, call.lineno)
    return None


def _addresses(scope: Scope) -> Iterator[ast.AST]:
    """What a call takes for an address: `p` of `cast(p, ...)` and `(c_float * n).from_address(p)`, not the length."""
    for call in nodes_of(scope):
        if isinstance(call, ast.Call) and call.args and called_name(call) in _TAKES_ADDRESS:
            yield from nodes_of(call.args[0])


def _prototypes(files: Mapping[str, ast.Module]) -> Iterator[tuple[str, str, ast.Call]]:
    """`LOSS = ctypes.CFUNCTYPE(...)`: its file, name and call."""
    for file, tree in files.items():
        for node in nodes_of(tree):
            if not isinstance(node, ast.Assign) or len(node.targets) != 1:
                continue
            name, call = last_name(node.targets[0]), node.value
            if name is not None and isinstance(call, ast.Call) and called_name(call) in PROTOTYPES:
                yield file, name, call


def _is_given(tree: ast.Module, prototype: str, function: str) -> bool:
    """`LOSS(self.loss)`, or `@LOSS` above it."""
    calls = (node for node in nodes_of(tree) if isinstance(node, ast.Call) and called_name(node) == prototype)
    heads = (node for node in nodes_of(tree) if isinstance(node, ast.FunctionDef) and node.name == function)
    wrapped = any(last_name(item) == function for node in calls for item in node.args)
    return wrapped or any(last_name(item) == prototype for node in heads for item in node.decorator_list)
