"""Operators of torch.library whose Library object nothing holds: when it is collected, they are taken back.

A finalizer of Library deregisters what it has defined. An OpOverload that the program kept then reads freed memory of
the dispatcher (SIGSEGV, std::bad_alloc), and torch.ops has the operator no more. A kernel that is a bound method keeps
its object, and a Library that this object holds.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import structs

from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes
from pytracer.analyze.naming import line_in

_LIBRARY = "Library"
_STATIC = ("staticmethod", "classmethod")
_REGISTERS = ("impl", "register_fake", "impl_abstract", "register_kernel", "define")
_QUOTED = 60
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class DroppedOperators(msgspec.Struct, frozen=True):
    """`made` (`pack = KernelPack(ns)`) at `place` (`line 31`) of `function` alone held the Library of `library`."""

    name: str
    made: str
    place: str
    function: str
    library: str
    namespace: str | None = None
    """None where the program computes it."""

    @property
    def summary(self) -> str:
        """Behind the headline."""
        return (
            f"`{self.name}` of {self.function}() alone held the torch.library.Library of {self.library}, which takes "
            "its operators back when it is collected"
        )

    @property
    def advice(self) -> str:
        """What to keep."""
        how = f"an attribute (`self.{self.name} = ...`)" if "." in self.function else "what it returns"
        return (
            f"Keep `{self.name}` ({self.place}: `{self.made}`) for as long as its operators are called, as "
            f"{how} or a variable of the module: when {self.function}() returns, the "
            f"Library of {self.library} is collected, and its operators are taken out of torch's dispatcher."
        )


def dropped_operators(files: Mapping[str, ast.Module], first: str | None) -> DroppedOperators | None:
    """The one Library of a program that nothing holds. `first`: the file whose lines are named without it."""
    found = [item for file, tree in files.items() for item in _of_file(files, file, tree, first)]
    return found[0] if len(found) == 1 else None


def _of_file(
    files: Mapping[str, ast.Module], file: str, tree: ast.Module, first: str | None
) -> Iterator[DroppedOperators]:
    for function in (item for item in nodes_of(tree) if isinstance(item, _Function)):
        for call, target in _bound(function, _LIBRARY):
            library = _place(file, call.lineno, first)
            namespace = next((item.value for item in call.args[:1] if isinstance(item, ast.Constant)), None)
            named = namespace if isinstance(namespace, str) else None
            if isinstance(target, ast.Name) and not _kept(function, target.id):
                yield structs.replace(_dropped(tree, function, call, target.id, library, library), namespace=named)
            owner = class_around(tree, function)
            if _is_of_self(target) and owner is not None and not _holds_itself(owner):
                for item in _constructions(files, owner.name, library, first):
                    yield structs.replace(item, namespace=named)


def _constructions(
    files: Mapping[str, ast.Module], owner: str, library: str, first: str | None
) -> Iterator[DroppedOperators]:
    """Of a class whose objects hold a Library: where each of them is a local variable that nothing keeps."""
    calls = sum(
        isinstance(item, ast.Call) and called_name(item) == owner for tree in files.values() for item in nodes_of(tree)
    )
    found = [
        _dropped(tree, function, call, target.id, _place(file, call.lineno, first), library)
        for file, tree in files.items()
        for function in nodes_of(tree)
        if isinstance(function, _Function)
        for call, target in _bound(function, owner)
        if isinstance(target, ast.Name) and not _kept(function, target.id)
    ]
    if len(found) == calls:
        yield from found


def _bound(function: _Function, made: str) -> Iterator[tuple[ast.Call, ast.expr]]:
    """`x = Library(...)` of a function, and what it binds."""
    for item in own_nodes(function):
        value = item.value if isinstance(item, ast.Assign) and len(item.targets) == 1 else None
        if isinstance(item, ast.Assign) and isinstance(value, ast.Call) and called_name(value) == made:
            yield value, item.targets[0]


def _dropped(
    tree: ast.Module, function: _Function, call: ast.Call, name: str, place: str, library: str
) -> DroppedOperators:
    owner = class_around(tree, function)
    words = f"{owner.name}.{function.name}" if owner is not None else function.name
    return DroppedOperators(name, shortened(f"{name} = {ast.unparse(call)}", _QUOTED), place, words, library)


def _place(file: str, line: int, first: str | None) -> str:
    return line_in(file, line, first)


def _is_of_self(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"


def _holds_itself(owner: ast.ClassDef) -> bool:
    """Whether a kernel is a method of the object: the dispatcher keeps it, and so the object."""
    static = {
        item.name
        for item in owner.body
        if isinstance(item, ast.FunctionDef)
        and any(isinstance(by, ast.Name) and by.id in _STATIC for by in item.decorator_list)
    }
    methods = {item.name for item in owner.body if isinstance(item, ast.FunctionDef)} - static
    given = (value for call in nodes_of(owner) if isinstance(call, ast.Call) for value in passed_values(call))
    return any(
        (isinstance(item, ast.Name) and item.id == "self" and not isinstance(value, ast.Attribute))
        or (isinstance(item, ast.Attribute) and _is_of_self(item) and item.attr in methods)
        for value in given
        for item in nodes_of(value)
    )


def _kept(function: _Function, name: str) -> bool:
    """Whether the object may outlive the function: it is used otherwise than by its methods, or to register kernels."""
    attributes = {id(item.value) for item in nodes_of(function) if isinstance(item, ast.Attribute)}
    passed = {
        id(value)
        for item in nodes_of(function)
        if isinstance(item, ast.Call) and called_name(item) in _REGISTERS
        for value in passed_values(item)
    }
    inside = {id(item) for part in _inner_bodies(function) for item in nodes_of(part)}
    for item in nodes_of(function):
        if isinstance(item, (ast.Global, ast.Nonlocal)) and name in item.names:
            return True
        if not isinstance(item, ast.Name) or item.id != name or not isinstance(item.ctx, ast.Load):
            continue
        if id(item) in inside or (id(item) not in attributes and id(item) not in passed):
            return True
    return False


def _inner_bodies(function: _Function) -> Iterator[ast.AST]:
    """What functions inside of it run later; their decorators are its own."""
    for item in nodes_of(function):
        if isinstance(item, ast.Lambda):
            yield item.body
        elif item is not function and isinstance(item, _Function):
            yield from item.body
