"""What a value is computed from: every expression that can take part, in the order of its distance from the value.

Unlike the slice, which follows only what is certain, all ways are taken: what is found here is possible, not proven.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Iterator

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import END, Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.reaching import ENTRY, UNKNOWN, places_that_bind, reaching
from pytracer.analyze.evidence.syntax.scopes import (
    class_around,
    class_named,
    function_named,
    is_parameter,
    own_nodes,
    statement_at,
)

_MOST = 240
_OF_TENSORS = frozenset(
    {"mean", "sum", "std", "var", "min", "max", "log", "exp", "sqrt", "abs", "view", "reshape", "to", "item", "clamp"}
    | {"squeeze", "get", "append", "update", "pow", "norm"}
)


class Part(msgspec.Struct, frozen=True):
    """An expression, or a statement that stores into a tensor, and where it is."""

    node: ast.AST
    spot: Spot


def parts_of(
    at: FailingLine, node: ast.AST, spot: Spot, known: Callable[[str, Spot], bool] | None = None
) -> Iterator[Part]:
    """The expression itself first; what makes a variable that is `known` to be finite is left out."""
    waiting, seen = deque([(node, spot)]), set[tuple[int, int]]()
    items: dict[tuple[int, int | None], ast.AST] = {}
    while waiting and len(seen) < _MOST:
        node, spot = waiting.popleft()
        key = (id(node), id(spot.scope))
        if key in seen:
            continue
        seen.add(key)
        whole = _tuple_item(at, node, spot)
        if whole is not None:
            waiting.append(whole)
            continue
        yield Part(node, spot)
        for item in nodes_of(node):
            if isinstance(item, ast.Call):
                waiting.extend(_returned(at, item, spot))
            name = variable(item)
            if name is None or name == "self" or not isinstance(getattr(item, "ctx", None), ast.Load):
                continue
            if known is not None and known(name, spot):
                continue
            for value, place, index in values_held(at, name, spot):
                waiting.append((items.setdefault((id(value), index), _held(value, index)), place))


def _held(value: ast.AST, index: int | None) -> ast.AST:
    """`f()[1]`, of `a, b = f()`."""
    if index is None or not isinstance(value, ast.expr):
        return value
    made = ast.Subscript(value, ast.Constant(index), ast.Load())
    return ast.fix_missing_locations(ast.copy_location(made, value))


def values_read(at: FailingLine, name: str, spot: Spot) -> list[Part]:
    """What a variable can be at a line: not what a later line gives it, where no loop leads back."""
    ways = reaching(spot.scope, name, spot.line, None)
    if ways is None or UNKNOWN in ways:
        ways = frozenset(places_that_bind(spot.scope, name))
    lost = {*places_that_bind(spot.scope, name)} - ways
    found = [
        Part(_held(value, index), place)
        for value, place, index in values_held(at, name, spot)
        if place.scope is not spot.scope or _line_of_statement(place) not in lost
    ]
    step = at.slice.argument(name, spot) if ENTRY in ways and is_parameter(spot.scope, name) else None
    return [*found, Part(*step)] if step is not None else found


def _line_of_statement(spot: Spot) -> int:
    statement = statement_at(spot.tree, spot.line)
    return statement.lineno if statement is not None else spot.line


def _tuple_item(at: FailingLine, node: ast.AST, spot: Spot) -> tuple[ast.AST, Spot] | None:
    """`rewards` of `return obs, rewards`, where the call's second one is meant."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant):
        return None
    index, value = node.slice.value, node.value
    if isinstance(value, ast.Tuple) and isinstance(index, int) and -1 <= index < len(value.elts):
        return value.elts[index], spot
    if not isinstance(value, ast.Call) or not isinstance(index, int):
        return None
    returned = [*_returned(at, value, spot)]
    if len(returned) == 1 and isinstance(returned[0][0], ast.Tuple) and 0 <= index < len(returned[0][0].elts):
        return returned[0][0].elts[index], returned[0][1]
    return None


def _returned(at: FailingLine, call: ast.Call, spot: Spot) -> Iterator[tuple[ast.AST, Spot]]:
    found = function_of(at, call, spot)
    if found is None:
        return
    function, place = found
    for item in own_nodes(function):
        if isinstance(item, ast.Return) and item.value is not None:
            yield (
                item.value,
                structs.replace(place, scope=function, line=item.lineno + 1, depth=None, call=(call, spot)),
            )


def function_of(at: FailingLine, call: ast.Call, spot: Spot) -> tuple[ast.FunctionDef, Spot] | None:
    """The program's function that is called; else the only one of that name, else the only forward()."""
    found = at.slice.function(call, spot)
    name = called_name(call)
    if found is not None or name is None or name in _OF_TENSORS:
        return found
    module = isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
    if module and call.func.value.id in ("torch", "np", "F", "nn", "math"):  # type: ignore[attr-defined]
        return None
    named = _named(at, name)
    if not named and name in ("model", "net", "policy", "network", "encoder", "module", "actor"):
        named = _named(at, "forward")
    return named[0] if len(named) == 1 else None


def _named(at: FailingLine, name: str) -> list[tuple[ast.FunctionDef, Spot]]:
    found = ((function_named(tree, name), file, tree) for file, tree in at.files.items())
    return [(item, Spot(file, tree, tree, END)) for item, file, tree in found if isinstance(item, ast.FunctionDef)]


def values_held(at: FailingLine, name: str, spot: Spot) -> Iterator[tuple[ast.AST, Spot, int | None]]:
    """All that a variable can be, with where; of `a, b = f()` the number of the item."""
    found = [*values_bound(spot.scope, name)]
    if found:
        yield from ((value, structs.replace(spot, line=value.lineno), index) for value, index in found)
    elif is_parameter(spot.scope, name):
        step = at.slice.argument(name, spot)
        if step is not None:
            yield step[0], step[1], None
    elif name.startswith("self."):
        owner = class_around(spot.tree, spot.scope)
        for method in owner.body if owner is not None else ():
            if isinstance(method, ast.FunctionDef):
                for value, index in values_bound(method, name):
                    yield value, structs.replace(spot, scope=method, line=value.lineno, depth=None, call=None), index
    elif not isinstance(spot.scope, ast.Module) and class_named(spot.tree, name) is None:
        outer = structs.replace(spot, scope=spot.tree, line=END, depth=None, call=None)
        yield from ((value, outer, index) for value, index in values_bound(spot.tree, name))


def values_bound(scope: ast.AST, name: str) -> Iterator[tuple[ast.expr | ast.stmt, int | None]]:
    """What lines give a variable or store into it: of `x[i] = v` the statement, of a loop what it runs over."""
    for node in own_nodes(scope):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from _of_target(target, node.value, node, name)
        elif isinstance(node, ast.AugAssign) and variable(node.target) == name:
            yield node.value, None
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            if any(variable(item) == name for item in nodes_of(node.target)):
                yield node.iter, None
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            func = node.value.func  # `x.masked_fill_(mask, v)`
            if isinstance(func, ast.Attribute) and func.attr.endswith("_") and variable(func.value) == name:
                yield node.value, None


def _of_target(
    target: ast.expr, value: ast.expr, node: ast.Assign | ast.AnnAssign | ast.NamedExpr, name: str
) -> Iterator[tuple[ast.expr | ast.stmt, int | None]]:
    if variable(target) == name:
        yield value, None
    elif isinstance(target, ast.Subscript) and variable(target.value) == name:
        yield node, None
    elif isinstance(target, (ast.Tuple, ast.List)):
        starred = any(isinstance(item, ast.Starred) for item in target.elts)
        for n, item in enumerate(target.elts):
            if variable(item) == name:
                yield value, None if starred else n
