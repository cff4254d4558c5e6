"""The line that counted what a tensor of numbers holds: `e.size` or `x.numel()` counts elements, `x.nbytes` bytes.

Back from the line that made the tensor, by syntax alone: through variables, what fills them, functions of the program,
and files that it saved and read again. A line is named where no other on the way counts anything else.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.slicing.callers import called_function
from pytracer.analyze.evidence.slicing.kept_values import kept_in
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.slicing.written_files import reads_file, written
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, classes_below, own_nodes, parameters, scope_of

Unit = Literal["elements", "bytes"]
_CALLS: dict[str, Unit] = {"numel": "elements", "nelement": "elements", "tell": "bytes"}
_ATTRIBUTES: dict[str, Unit] = {"size": "elements", "nbytes": "bytes"}
_OF_FILES = frozenset({"tell"})
_PRODUCTS = frozenset({"prod"})  # of a shape
_MOST = 48
_DEEPEST = 8


class Counting(msgspec.Struct, frozen=True):
    """`node` counts `unit`s, at `spot`. `saved` and `read`: of the file between it and the tensor, where there is one.

    `rows` is how its rows would be counted. `mixed`: another line puts something else there, which may be right.
    """

    node: ast.expr
    unit: Unit
    spot: Spot
    saved: Spot | None = None
    read: Spot | None = None
    mixed: bool = False

    @property
    def rows(self) -> str | None:
        """`len(e)` of `e.size`; None of a place in a file."""
        call = self.node if isinstance(self.node, ast.Call) else None
        owner = call.func if call is not None else self.node
        if call is not None and called_name(call) in _PRODUCTS:
            owner = call.args[0]
        has_rows = isinstance(owner, ast.Attribute) and owner.attr not in _OF_FILES
        return f"len({ast.unparse(owner.value)})" if isinstance(owner, ast.Attribute) and has_rows else None


class _Value(msgspec.Struct, frozen=True):
    """An expression on the way. `key`: what is read is what it has below that key."""

    node: ast.expr
    spot: Spot
    depth: int = 0
    key: object = None
    saved: Spot | None = None
    read: Spot | None = None
    reader: int = 0


def counting_line(files: Mapping[str, ast.Module], back: Slice, node: ast.expr, spot: Spot) -> Counting | None:
    """Of what an expression at `spot` makes; None where nothing is counted, or lines count different things."""
    waiting, seen = deque([_Value(node, spot)]), set[tuple[str | None, int, str]]()
    found: list[Counting] = []
    beside: dict[int, list[ast.expr]] = {}  # what is put into one variable, by the value that reads it
    while waiting and len(seen) < _MOST:
        item = waiting.popleft()
        key = (item.spot.file, item.spot.line, ast.unparse(item.node))
        if key in seen or item.depth > _DEEPEST:
            continue
        seen.add(key)
        counted = next(_counted(item.node), None)
        if counted is None:
            before = [structs.replace(one, reader=id(item.node)) for one in _before(files, back, item)]
            beside.setdefault(id(item.node), []).extend(one.node for one in before)
            waiting.extend(before)
            continue
        at = structs.replace(item.spot, line=counted[0].lineno)
        mixed = any(_is_other(one) for one in beside.get(item.reader, ()) if one is not item.node)
        found.append(Counting(*counted, at, item.saved, item.read, mixed))
    alike = {(item.spot.file, ast.unparse(item.node)) for item in found}
    return min(found, key=lambda item: item.spot.line) if len(alike) == 1 else None


def _is_other(node: ast.expr) -> bool:
    """Whether it is no start value, such as `[0]`, and counts something else: `ends[-1] + len(x)`."""
    return next(_counted(node), None) is None and any(
        isinstance(item, ast.Call) and called_name(item) == "len" for item in nodes_of(node)
    )


def _counted(value: ast.expr) -> Iterator[tuple[ast.expr, Unit]]:
    called = {id(item.func) for item in nodes_of(value) if isinstance(item, ast.Call)}
    for item in nodes_of(value):
        if isinstance(item, ast.Call) and called_name(item) in _CALLS and not item.args:
            yield item, _CALLS[called_name(item) or ""]
        elif isinstance(item, ast.Call) and called_name(item) in _PRODUCTS and _is_shape(item):
            yield item, "elements"
        elif isinstance(item, ast.Attribute) and id(item) not in called and item.attr in _ATTRIBUTES:
            yield item, _ATTRIBUTES[item.attr]


def _is_shape(call: ast.Call) -> bool:
    return len(call.args) == 1 and isinstance(call.args[0], ast.Attribute) and call.args[0].attr == "shape"


def _before(files: Mapping[str, ast.Module], back: Slice, item: _Value) -> Iterator[_Value]:
    """The values that one is made of."""
    keys = {
        id(node.value): node.slice.value
        for node in nodes_of(item.node)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    }
    for node in nodes_of(item.node):
        key = item.key if node is item.node else keys.get(id(node))
        if isinstance(node, ast.Call):
            yield from _of_call(files, back, item, node, key)
        name = variable(node)
        if name is not None and isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            yield from (_next(item, value, spot, key) for value, spot in _bound(back, name, item.spot))


def _next(item: _Value, value: ast.expr, spot: Spot, key: object = None) -> _Value:
    return structs.replace(item, node=value, spot=spot, depth=item.depth + 1, key=key)


def _of_call(
    files: Mapping[str, ast.Module], back: Slice, item: _Value, call: ast.Call, key: object
) -> Iterator[_Value]:
    function = called_function(files, item.spot.tree, call)
    if function is None and reads_file(call):
        saved = written(files, back, call, key, item.spot)
        if saved is not None:
            read = structs.replace(item.spot, line=call.lineno)
            yield structs.replace(_next(item, saved.value, saved.spot), saved=saved.spot, read=read)
        return
    if function is None:
        return
    file, scope = function
    for node in own_nodes(scope):
        if isinstance(node, ast.Return) and node.value is not None:
            inner = Spot(file, files[file], scope, node.lineno, call=(call, item.spot))
            yield _next(item, node.value, inner)


def _bound(back: Slice, name: str, spot: Spot) -> Iterator[tuple[ast.expr, Spot]]:
    """What lines of its function bind to it, add to it, or put into it; of a parameter, what is passed."""
    owner = class_around(spot.tree, spot.scope) if name.startswith("self.") else None
    around = [owner, *classes_below([spot.tree], owner)] if owner is not None else [spot.scope]
    nodes = (node for item in around for node in (nodes_of(item) if owner is not None else own_nodes(item)))
    for node in nodes:
        targets: list[ast.expr] = [node.target] if isinstance(node, ast.AugAssign) else []
        targets = node.targets if isinstance(node, ast.Assign) else targets
        if isinstance(node, (ast.Assign, ast.AugAssign)) and any(variable(item) == name for item in targets):
            yield node.value, _at(spot, node.lineno, owner)
    called = f".{name.removeprefix('self.')}" if owner is not None else name
    for statement, value in (pair for item in around for pair in kept_in(item, called)):
        if isinstance(statement, ast.Expr):
            yield value, _at(spot, statement.lineno, owner)
    if name in parameters(spot.scope):
        passed = back.argument(name, spot)
        if passed is not None and isinstance(passed[0], ast.expr):
            yield passed[0], passed[1]


def _at(spot: Spot, line: int, owner: ast.ClassDef | None) -> Spot:
    """A line of the same function; of an attribute one of any method."""
    scope = spot.scope if owner is None else scope_of(spot.tree, line)
    return structs.replace(spot, scope=scope, line=line)
