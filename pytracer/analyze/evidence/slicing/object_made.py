"""Which object a variable is: the call that made it, and through which calls of its own function, of several ones."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer.analyze.evidence.slicing.callers import calls_named, calls_of
from pytracer.analyze.evidence.slicing.calls import same_object
from pytracer.analyze.evidence.slicing.keepers import Files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.scopes import class_around, scope_of

_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef)
_HOPS, _MOST, _DEEPEST = 8, 8, 3

Key = tuple[tuple[str | None, int, int], ...]


class MadeObject(msgspec.Struct, frozen=True):
    """`call` made it. `key`: equal of the same object; of another one as well where that is made in the same round."""

    call: ast.Call
    spot: Spot
    key: Key


def object_of(files: Files, back: Slice, node: ast.AST, spot: Spot) -> MadeObject | None:
    """Of a variable or attribute; None where it may be several, or was not made by a call."""
    for _ in range(_HOPS):
        made = back.made(node, spot, calls=True)
        inner = same_object(made.node)
        if inner is None:
            call = made.node if isinstance(made.node, ast.Call) else None
            return MadeObject(call, made.spot, (*_key(files, call, made.spot),)) if call is not None else None
        node, spot = inner, made.spot
    return None


def spots_of(files: Files, file: str, line: int, levels: int = _DEEPEST) -> list[Spot]:
    """A line of a program once for each way by which its function is called, as far as that is known."""
    tree = files[file]
    scope = scope_of(tree, line)
    plain = Spot(file, tree, scope, line)
    if not isinstance(scope, _NAMED) or not levels:
        return [plain]
    found = [
        Spot(file, tree, scope, line, None, (item.call, outer))
        for item in calls_of(files, file, scope)
        if item.passed is None
        for outer in spots_of(files, item.file, item.call.lineno, levels - 1)
    ]
    return found[:_MOST] or [plain]


def _key(files: Files, call: ast.Call, spot: Spot) -> Iterator[tuple[str | None, int, int]]:
    yield spot.file, call.lineno, call.col_offset
    called = spot.call
    while called is not None:
        outer, at = called
        if _is_called_often(files, spot):
            yield at.file, outer.lineno, outer.col_offset
        spot, called = at, at.call


def _is_called_often(files: Files, spot: Spot) -> bool:
    if not isinstance(spot.scope, _NAMED) or spot.file is None or spot.file not in files:
        return False
    owner = class_around(spot.tree, spot.scope) if spot.scope.name == "__init__" else None
    calls = calls_named(files, owner.name) if owner is not None else calls_of(files, spot.file, spot.scope)
    return len([*calls]) > 1
