"""What a program does to a bytearray, an `array` or a NumPy array that moves, shrinks or frees its memory."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import keyword_value
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.names import is_attribute, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, scope_of

SHRINKS = frozenset({"clear", "pop", "remove", "del", "part", "resize"})
_GROWS = frozenset({"append", "extend", "insert", "frombytes", "fromfile", "fromlist", "+="})
_METHODS = (SHRINKS | _GROWS) - {"del", "part", "+="}


class Resizing(msgspec.Struct, frozen=True):
    """`text` (`self.buffer.clear()`) at `spot`; `how`: the method, `del`, `part` (`b[:] = x`) or `+=`."""

    how: str
    text: str
    spot: Spot


def resizings(files: Mapping[str, ast.Module], spot: Spot, name: str) -> Iterator[Resizing]:
    """Of an attribute (`self.buffer`) in all of its class and where another object's has that name; of a variable in
    its function, behind `spot` or in a loop around it.
    """
    attribute = name.removeprefix("self.") if name.startswith("self.") else None
    if attribute is None:
        around = [(item.lineno, item.end_lineno or 0) for item in loops_around(spot.tree, spot.line)]
        for node in own_nodes(spot.scope):
            found = _resizing(node, spot, lambda item: variable(item) == name)
            behind = found is not None and found.spot.line >= spot.line
            if found is not None and (behind or any(low <= found.spot.line <= high for low, high in around)):
                yield found
        return
    owner = class_around(spot.tree, spot.scope)
    for file, tree in files.items():
        for node in nodes_of(tree):
            found = _resizing(node, Spot(file, tree, tree, 0), lambda item: is_attribute(item, attribute))
            if found is None:
                continue
            scope = scope_of(tree, found.spot.line)
            inside = class_around(tree, scope)
            if inside is owner or not found.text.removeprefix("del ").startswith("self."):
                yield structs.replace(found, spot=structs.replace(found.spot, scope=scope))


def _resizing(node: ast.AST, spot: Spot, is_owner: Callable[[ast.expr], bool]) -> Resizing | None:
    """What one statement or call does to it."""
    how: str | None = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_owner(node.func.value):
        how = node.func.attr if node.func.attr in _METHODS and not _is_refused(node) else None
    elif isinstance(node, ast.Delete) and any(_is_part(item, is_owner) for item in node.targets):
        how = "del"
    elif isinstance(node, ast.Assign) and any(_is_part(i, is_owner, sliced=True) for i in node.targets):
        how = "part"
    elif isinstance(node, ast.AugAssign) and is_owner(node.target):
        how = "+="
    if how is None or not isinstance(node, (ast.stmt, ast.expr)):
        return None
    return Resizing(how, ast.unparse(node), structs.replace(spot, line=node.lineno))


def _is_part(node: ast.expr, is_owner: Callable[[ast.expr], bool], *, sliced: bool = False) -> bool:
    """`b[8:]`, or an item of it."""
    return (
        isinstance(node, ast.Subscript) and is_owner(node.value) and (not sliced or isinstance(node.slice, ast.Slice))
    )


def _is_refused(call: ast.Call) -> bool:
    """NumPy checks for other references, unless it is told not to."""
    given = keyword_value(call, "refcheck")
    unchecked = isinstance(given, ast.Constant) and given.value is False
    return isinstance(call.func, ast.Attribute) and call.func.attr == "resize" and not unchecked
