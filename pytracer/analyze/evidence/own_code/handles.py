"""Classes of a program that own a native object, whose handle an attribute has, and which free it when they end."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeGuard

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.own_code.native_calls import parents_of
from pytracer.analyze.evidence.syntax.bindings import each_set
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

DEL, EXIT, FINALIZE, GC = "__del__", "__exit__", "weakref.finalize", "ffi.gc"
_FREES = Pattern(
    r"free|del(?:ete)?(?:_|$)|destr|release|close|drop|dispose|deinit|dealloc|dtor|shutdown|cleanup|remove",
    re.IGNORECASE,
)
_CLOSERS = frozenset({"close", "free", "release", "destroy", "dispose", "shutdown", "delete"})
_LOOKS_AT = (
    *("finalize", "ref", "super", "type", "isinstance", "id", "getattr", "hasattr", "setattr", "vars", "repr"),
    "__init__",  # `Base.__init__(self)`, as super().__init__() is
)
_QUOTED = 44
Function = ast.FunctionDef | ast.AsyncFunctionDef
IsNative = Callable[[ast.AST], bool]


class Release(msgspec.Struct, frozen=True):
    """`text` at `line`, a call of `function`, frees what `attribute` of an object of class `owner` has.

    `way`: the method that does, or `weakref.finalize` and `ffi.gc`, which do when the object is collected.
    """

    owner: str
    attribute: str
    way: str
    file: str
    line: int
    text: str
    function: str

    @property
    def by_collection(self) -> bool:
        """Whether it needs no call of the program."""
        return self.way in (DEL, FINALIZE, GC)


def releases(files: Mapping[str, ast.Module], is_native: IsNative) -> dict[str, tuple[Release, ...]]:
    """By class."""
    found = {
        node.name: tuple(_of_class(node, file, is_native))
        for file, tree in files.items()
        for node in nodes_of(tree)
        if isinstance(node, ast.ClassDef)
    }
    return {name: items for name, items in found.items() if items}


def gives_itself_away(owner: ast.ClassDef) -> bool:
    """Whether one of its methods may store the object itself, such as in a registry."""
    for method in (item for item in owner.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))):
        parents = parents_of(method)
        for node in nodes_of(method):
            if isinstance(node, ast.Name) and node.id == "self" and not _is_plain(node, parents.get(id(node))):
                return True
    return False


def _is_plain(node: ast.Name, around: ast.AST | None) -> bool:
    """`self.handle`, `return self`, and what keeps only a weak reference."""
    if isinstance(around, ast.Call):
        return called_name(around) in _LOOKS_AT
    return isinstance(around, (ast.Attribute, ast.Return))


def _of_class(owner: ast.ClassDef, file: str, is_native: IsNative) -> Iterator[Release]:
    methods = {item.name: item for item in owner.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))}
    made = _native_attributes(owner, is_native)
    for name in (DEL, EXIT, *sorted(_CLOSERS & methods.keys())):
        for method in _reached(methods, name):
            for call in (node for node in own_nodes(method) if isinstance(node, ast.Call)):
                frees = is_native(call) and _FREES.search(called_name(call) or "")
                taken = _taken(call, method) if frees else set()
                for attribute in taken & made or taken:  # a base class frees what another one sets
                    yield release_by(owner.name, attribute, name, file, call)
    for method in methods.values():
        yield from _of_finalizers(owner, method, made, file, is_native)


def _of_finalizers(
    owner: ast.ClassDef, method: Function, made: set[str], file: str, is_native: IsNative
) -> Iterator[Release]:
    """`weakref.finalize(self, lib.flat_free, self.handle)`, and `self.handle = ffi.gc(..., lib.flat_free)`."""
    for node in own_nodes(method):
        if isinstance(node, ast.Call) and called_name(node) == "finalize" and len(node.args) > 2:
            if ast.unparse(node.args[0]) == "self" and _is_function(node.args[1], is_native):
                for attribute in (_taken(node, method) & made) or _set_to(node, method):
                    yield release_by(owner.name, attribute, FINALIZE, file, node)
        elif isinstance(node, ast.Assign) and is_collected(node.value, is_native):
            for attribute in filter(None, map(_own_attribute, node.targets)):
                yield release_by(owner.name, attribute, GC, file, node.value)


def is_collected(node: ast.AST | None, is_native: IsNative) -> TypeGuard[ast.Call]:
    """`ffi.gc(lib.flat_new(n), lib.flat_free)`, which frees it when the object that this returns ends."""
    of_cffi = isinstance(node, ast.Call) and called_name(node) == "gc" and len(node.args) > 1
    return isinstance(node, ast.Call) and of_cffi and _is_function(node.args[1], is_native)


def _is_function(node: ast.expr, is_native: IsNative) -> bool:
    """`lib.flat_free`."""
    return is_native(ast.Call(node, [], []))


def _native_attributes(owner: ast.ClassDef, is_native: IsNative) -> set[str]:
    """Attributes that a line sets to what a native call returns, also by a variable."""
    found = set()
    for node in nodes_of(owner):
        if not isinstance(node, ast.Assign):
            continue
        for target, value in each_set(node.targets, node.value):
            attribute = _own_attribute(target)
            made = any(is_native(part) for part in nodes_of(value))
            made = made or (isinstance(value, ast.Name) and _is_made(owner, value.id, is_native))
            if attribute is not None and made:
                found.add(attribute)
    return found


def _is_made(owner: ast.ClassDef, name: str, is_native: IsNative) -> bool:
    """Whether a native call makes a variable of the class's methods."""
    nodes = (node for node in nodes_of(owner) if isinstance(node, ast.Assign))
    bound = (
        value for node in nodes for target, value in each_set(node.targets, node.value) if ast.unparse(target) == name
    )
    return any(is_native(part) for value in bound for part in nodes_of(value))


def _reached(methods: Mapping[str, Function], name: str) -> Iterator[Function]:
    """A method, and those of its object that it calls."""
    waiting, seen = [name], {name}
    while waiting:
        method = methods.get(waiting.pop())
        if method is None:
            continue
        yield method
        called = {
            node.func.attr
            for node in own_nodes(method)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _own_attribute(node.func)
        }
        waiting += called - seen
        seen |= called


def _taken(call: ast.Call, method: Function) -> set[str]:
    """Attributes of `self` that a call is given, also by a variable of the method."""
    nodes = [node for item in passed_values(call) for node in nodes_of(item)]
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    bound = [node for node in own_nodes(method) if isinstance(node, ast.Assign)]
    values = [
        value for node in bound for target, value in each_set(node.targets, node.value) if ast.unparse(target) in names
    ]
    return {name for node in (*nodes, *values) if isinstance(node, ast.Attribute) and (name := _own_attribute(node))}


def _set_to(call: ast.Call, method: Function) -> set[str]:
    """Attributes that are set to a variable that a call is given."""
    names = {node.id for item in call.args[2:] for node in nodes_of(item) if isinstance(node, ast.Name)}
    bound = [node for node in own_nodes(method) if isinstance(node, ast.Assign)]
    chained = {ast.unparse(item) for node in bound for item in node.targets} & names
    found = {
        name
        for node in bound
        for target, value in each_set(node.targets, node.value)
        if (name := _own_attribute(target)) and isinstance(value, ast.Name) and value.id in names
    }
    both = (node for node in bound if chained & {ast.unparse(item) for item in node.targets})  # `self.h = h = make()`
    return found | {name for node in both for item in node.targets if (name := _own_attribute(item))}


def _own_attribute(node: ast.expr) -> str | None:
    """`handle` of `self.handle`."""
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr if own and isinstance(node, ast.Attribute) else None


def release_by(owner: str, attribute: str, way: str, file: str, call: ast.Call) -> Release:
    """By one call."""
    text = shortened(ast.unparse(call), _QUOTED)
    return Release(owner, attribute, way, file, call.lineno, text, called_name(call) or "")
