"""The addresses that a call hands to native code, in what it passes: a structure's fields, an array of addresses.

`lib.f(byref(job))` with `job = Job(x.ctypes.data, n)` or `job.rows = x.ctypes.data`; `(c_void_p * 2)(a.data_ptr())`; a
number that an attribute keeps. Only what carries an address is followed: not what a function makes of it.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.slicing.given_memory import GivenMemory, Search, of_class, taken_of
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes

_DEPTH = 8
# What hands on the address that it is given, or that of what it is given.
_HAND_ON = frozenset({"byref", "pointer", "addressof", "cast", "c_void_p", "int", "c_size_t", "c_uint64", "c_longlong"})
_COLLECT = frozenset({"array", "asarray", "tensor", "as_tensor", "list", "tuple"})
_ADD = frozenset({"append"})
_KEEPS = "data_as"  # the pointer holds its array, but not where a field or an element takes its value


class Lent(msgspec.Struct, frozen=True):
    """`memory`, which `field` (`rows`, or the number of an argument) of the structure `owner` got; or `holder`.

    `holder`: the attribute (`self.address`) that the line passes as it is.
    """

    memory: GivenMemory
    owner: str | None = None
    field: str | int | None = None
    holder: str | None = None


class LentAddresses:
    """Of one program. `structures`: the names of its classes of ctypes."""

    def __init__(self, search: Search, structures: Collection[str]) -> None:
        self._search, self._structures = search, structures
        self._seen: set[tuple[int, str | int | None]] = set()
        self.followed: set[int] = set()  # the values that attributes get, by their nodes

    def of(self, node: ast.AST, spot: Spot) -> Iterator[Lent]:
        """In what one argument of a call passes."""
        yield from self._in(node, spot, Lent(GivenMemory(ast.Constant(None), "", "", 0, spot)), _DEPTH)

    def _in(self, node: ast.AST, spot: Spot, at: Lent, depth: int) -> Iterator[Lent]:
        key = (id(node), at.field)
        if depth < 0 or key in self._seen:
            return
        self._seen.add(key)
        taken = self._taken(node, at)
        if taken is not None:
            owner, how = taken
            text = f"{ast.unparse(node)}()" if how == "buffer_info" else ast.unparse(node)
            line = getattr(node, "lineno", spot.line)
            yield structs.replace(at, memory=GivenMemory(owner, text, how, line, structs.replace(spot, line=line)))
            if at.owner is None:
                yield from self._in(owner, spot, at, depth - 1)  # an array of addresses, or a structure
        elif isinstance(node, ast.Call):
            yield from self._in_call(node, spot, at, depth)
        elif (name := variable(node)) is not None:
            yield from self._in_variable(node, name, spot, at, depth)
        else:
            for part in _parts(node):
                yield from self._in(part, spot, at, depth - 1)

    def _taken(self, node: ast.AST, at: Lent) -> tuple[ast.expr, str] | None:
        found = taken_of(node)
        if found is not None and not (found[1] == "addressof" and self._is_structure(found[0])):
            return found
        call = node.value if isinstance(node, ast.Attribute) and node.attr == "value" else None
        if isinstance(call, ast.Call) and called_name(call) == "cast" and call.args and variable(call.args[0]):
            return call.args[0], "cast"
        func = node.func if isinstance(node, ast.Call) and at.owner is not None else None
        inner = func.value if isinstance(func, ast.Attribute) and func.attr == _KEEPS else None
        return (inner.value, "ctypes.data") if isinstance(inner, ast.Attribute) and inner.attr == "ctypes" else None

    def _is_structure(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and called_name(node) in self._structures

    def _in_call(self, call: ast.Call, spot: Spot, at: Lent, depth: int) -> Iterator[Lent]:
        name = called_name(call)
        if name in self._structures:
            for number, value in enumerate(call.args):
                yield from self._in(value, spot, structs.replace(at, owner=name, field=number, holder=None), depth - 1)
            for item in call.keywords:
                field = structs.replace(at, owner=name, field=item.arg, holder=None)
                yield from self._in(item.value, spot, field, depth - 1)
        elif isinstance(call.func, ast.BinOp):  # (ctypes.c_void_p * 2)(...)
            for value in passed_values(call):
                yield from self._in(value, spot, structs.replace(at, owner=at.owner or "", holder=None), depth - 1)
        elif name in _HAND_ON | _COLLECT or isinstance(call.func, ast.Call):  # POINTER(T)(x)
            for value in call.args[:1]:
                yield from self._in(value, spot, at, depth - 1)
        else:
            for made, there in self._search.returned(call, spot):
                yield from self._in(made, there, at, depth - 1)

    def _in_variable(self, node: ast.AST, name: str, spot: Spot, at: Lent, depth: int) -> Iterator[Lent]:
        held = at
        if isinstance(node, ast.Name):
            behind = [*self._search.values(node.id, spot)]
        else:
            behind = [*of_class(name, spot)]
            held = structs.replace(at, holder=name) if at.owner is None and at.holder is None else at
        for value, there in behind:
            yield from self._in(value, there, held, depth - 1)
        owner = next((found for value, _ in behind if (found := self._structure_of(value)) is not None), None)
        for field, value, there in _filled(name, spot):
            self.followed.add(id(value))
            if isinstance(field, str) and owner is None:
                continue
            part = structs.replace(at, owner=owner or "", field=field, holder=None)
            yield from self._in(value, there, part, depth - 1)

    def _structure_of(self, value: ast.AST) -> str | None:
        name = called_name(value) if isinstance(value, ast.Call) else None
        return name if name in self._structures else None


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """What carries an address in an expression that is no call."""
    if isinstance(node, (ast.List, ast.Tuple)):
        yield from node.elts
    elif isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        yield node.elt
    elif isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, ast.BinOp):
        yield node.left  # an address and an offset
    elif isinstance(node, (ast.Starred, ast.Subscript)) or (isinstance(node, ast.Attribute) and node.attr == "value"):
        yield node.value


def _filled(name: str, spot: Spot) -> Iterator[tuple[str | None, ast.expr, Spot]]:
    """`job.rows = x`, `addresses[i] = x`, `addresses.append(x)`: the field, what it gets, and where."""
    around = class_around(spot.tree, spot.scope) if name.startswith("self.") else None
    scopes = [item for item in around.body if isinstance(item, ast.FunctionDef)] if around is not None else [spot.scope]
    for scope in scopes:
        for item in own_nodes(scope):
            line = getattr(item, "lineno", 0)
            there = structs.replace(spot, scope=scope, line=line)
            if around is None and line > spot.line:
                continue
            if isinstance(item, ast.Assign):
                for target in item.targets:
                    if isinstance(target, (ast.Attribute, ast.Subscript)) and variable(target.value) == name:
                        yield (target.attr if isinstance(target, ast.Attribute) else None), item.value, there
            elif isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr in _ADD:
                yield from ((None, value, there) for value in item.args if variable(item.func.value) == name)
