"""Which calls of a program are of native code that ctypes or cffi loaded, and whether a local variable is kept."""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterable, Iterator, Mapping

import msgspec

from pytracer.analyze.evidence.syntax.bindings import each_set
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes

_LOADS = ("CDLL", "PyDLL", "LoadLibrary", "dlopen")
# Methods of Python's containers and registries, which keep what they are given.
KEEPS = frozenset(
    ("append", "add", "insert", "extend", "setdefault", "put", "put_nowait", "update", "push", "appendleft")
    + ("register", "connect", "finalize")
)
# What reads an object, and keeps nothing of it.
_READS = frozenset(
    ("data_ptr", "ctypes", "numel", "nelement", "element_size", "size", "shape", "dtype", "device", "nbytes", "stride")
    + ("copy_", "fill_", "zero_", "value")
)
_PASSES_ON = frozenset({"cast", "byref", "pointer"})
_NUMBER_OF = frozenset({"int", "addressof", "c_void_p", "len", "sizeof", "memmove", "memset"})


class NativeCalls(msgspec.Struct, frozen=True):
    """`owners`: last names of what libraries were loaded into (`lib` of `self.lib`); `defined`: own functions."""

    owners: frozenset[str]
    defined: frozenset[str]

    def has(self, node: ast.AST) -> bool:
        """Whether it calls a function of a library: of an object that may be one, no method of Python's or its own."""
        function = node.func if isinstance(node, ast.Call) else None
        if not isinstance(function, ast.Attribute) or ast.unparse(function.value) == "self":
            return False
        return self.is_of_library(node) or (function.attr not in KEEPS and function.attr not in self.defined)

    def is_of_library(self, node: ast.AST) -> bool:
        """Whether it calls a function of what the program is seen to load."""
        function = node.func if isinstance(node, ast.Call) else None
        return isinstance(function, ast.Attribute) and last_name(function.value) in self.owners


def native_calls(files: Mapping[str, ast.Module]) -> NativeCalls:
    """Of a program."""
    nodes = [node for tree in files.values() for node in nodes_of(tree)]
    defined = frozenset(
        node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    )
    returned = _returned(nodes)
    pairs = [
        (name, value)
        for node in nodes
        if isinstance(node, ast.Assign)
        for target, value in _pairs(node, returned)
        if (name := last_name(target)) is not None
    ]
    loaded = {name for name, value in pairs if _loads(value)}
    while more := {name for name, value in pairs if last_name(value) in loaded} - loaded:  # `self._lib = lib`
        loaded |= more
    return NativeCalls(frozenset(loaded), defined)


def _loads(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and called_name(node) in _LOADS


def _pairs(node: ast.Assign, returned: Mapping[str, ast.expr]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What is set, with its value; also of `a, b = c, d` and of `a, b = f()` where that returns both."""
    value = node.value
    if isinstance(value, ast.Call) and not _loads(value):
        value = returned.get(called_name(value) or "", value)
    return each_set(node.targets, value)


def _returned(nodes: Iterable[ast.AST]) -> dict[str, ast.expr]:
    """By name, the values that functions of the program return; of those that have one `return`."""
    found: dict[str, ast.expr] = {}
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            values = [item.value for item in own_nodes(node) if isinstance(item, ast.Return)]
            if len(values) == 1 and values[0] is not None:
                found[node.name] = values[0]
    return found


def parents_of(tree: ast.AST) -> dict[int, ast.AST]:
    """The node around each node, by its id()."""
    return {id(child): node for node in nodes_of(tree) for child in ast.iter_child_nodes(node)}


class Uses(msgspec.Struct, frozen=True):
    """How a function uses a variable. `is_native`, `is_field`: whether a call, or what is set, keeps no object.

    `is_read`: whether an attribute of it, or what a method of it returns, keeps no object either.
    """

    parents: Mapping[int, ast.AST]
    is_native: Callable[[ast.AST], bool]
    is_field: Callable[[ast.expr], bool] = lambda _: False
    is_read: Callable[[ast.Attribute], bool] = lambda _: False

    def keep(self, scope: Scope, name: str, before: Container[int] = ()) -> bool:
        """Whether what the variable holds may outlive the function: it is returned, stored or given to Python code.

        `before`: lines that read another value of it.
        """
        for node in nodes_of(scope):
            if isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names:
                return True
            inner = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and node is not scope
            if inner and any(isinstance(item, ast.Name) and item.id == name for item in nodes_of(node)):
                return True
            used = isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
            if used and getattr(node, "lineno", 0) not in before and not self._only_read(node):
                return True
        return False

    def _only_read(self, node: ast.AST) -> bool:
        """Whether one use keeps nothing: its address, its size, an element that is set, a native call."""
        around = self.parents.get(id(node))
        if isinstance(around, ast.Attribute):
            return around.attr in _READS or self._is_set(around) or self.is_read(around)
        if isinstance(around, ast.keyword):
            return self.is_native(self.parents[id(around)])
        if isinstance(around, ast.Subscript) and around.value is node:
            return self._is_set(around)
        if isinstance(around, ast.Call) and node in around.args:
            if called_name(around) in _PASSES_ON:
                return self._only_read(around)
            return called_name(around) in _NUMBER_OF or self.is_native(around)
        return isinstance(around, ast.Assign) and all(map(self.is_field, around.targets))

    def _is_set(self, node: ast.AST | None) -> bool:
        """Whether `x[0].size` is what an assignment sets."""
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            if not isinstance(node.ctx, ast.Load):
                return True
            node = self.parents.get(id(node))
        return False
