"""Which call made an object: back over names, containers that it was put into, loops over these, and functions."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from msgspec import structs

from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.callers import only_call
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import ITEM_COMPREHENSIONS
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, own_nodes, parameters, scope_of

_MOST = 60
_PUTS = frozenset({"append", "extend", "add", "insert", "put", "appendleft", "setdefault", "update"})
_SAME = frozenset({"list", "tuple", "set", "deque", "enumerate", "reversed", "zip", "sorted", "iter"})
_OF_ITSELF = frozenset({"items", "values", "copy", "pop", "popleft", "get"})
_LOOPS = (ast.For, ast.AsyncFor, ast.comprehension)

Place = tuple[ast.AST, Spot]


def makers(slice_: Slice, node: ast.AST, spot: Spot, names: Collection[str]) -> Iterator[tuple[ast.Call, Spot]]:
    """The calls of functions with these names that an object may have come from, the nearest first."""
    waiting: list[Place] = [(node, spot)]
    seen: set[tuple[str, int]] = set()
    while waiting and len(seen) < _MOST:
        item, at = waiting.pop(0)
        key = (ast.unparse(item), id(at.scope))
        if key in seen:
            continue
        seen.add(key)
        if isinstance(item, ast.Call) and called_name(item) in names:
            yield item, at
        else:
            waiting += _before(slice_, item, at)


def _before(slice_: Slice, node: ast.AST, spot: Spot) -> Iterator[Place]:
    name = variable(node)
    if name is not None:
        yield from _values(slice_, name, spot)
    elif isinstance(node, ast.Call):
        yield from _called(slice_, node, spot)
    elif isinstance(node, (ast.Subscript, ast.Starred, ast.Await)):
        yield node.value, spot
    elif isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        yield from ((item, spot) for item in node.elts)
    elif isinstance(node, ast.Dict):
        yield from ((item, spot) for item in node.values)
    elif isinstance(node, ast.DictComp):
        yield node.value, spot
    elif isinstance(node, ITEM_COMPREHENSIONS):
        yield node.elt, spot
    elif isinstance(node, ast.IfExp):
        yield from ((item, spot) for item in (node.body, node.orelse))
    elif isinstance(node, ast.BinOp):
        yield from ((item, spot) for item in (node.left, node.right))


def _values(slice_: Slice, name: str, spot: Spot) -> Iterator[Place]:
    """What a variable is bound to, what its loop goes through, what is put into it, and what its caller passes."""
    owner = class_around(spot.tree, spot.scope) if name.startswith("self.") else None
    methods = [item for item in owner.body if isinstance(item, ast.FunctionDef)] if owner is not None else []
    scopes: list[Scope] = [*methods] or [spot.scope]
    for scope in scopes:
        inside = spot if scope is spot.scope else structs.replace(spot, scope=scope, depth=None, call=None)
        for line, value, _ in bindings_of(scope, name):
            if value is not None:
                yield value, structs.replace(inside, line=line)
        for item in own_nodes(scope):
            if isinstance(item, _LOOPS) and any(variable(part) == name for part in nodes_of(item.target)):
                yield item.iter, structs.replace(inside, line=item.iter.lineno)
            yield from ((value, structs.replace(inside, line=value.lineno)) for value in _put(item, name))
    if isinstance(spot.scope, ast.FunctionDef) and name in parameters(spot.scope):
        passed = slice_.argument(name, spot) or _passed(spot, spot.scope, name)
        if passed is not None:
            yield passed


def _put(node: ast.AST, name: str) -> Iterator[ast.expr]:
    """`works.append(work)`, `works[rank] = work`, `works += [work]`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called_name(node) in _PUTS:
        yield from node.args[-1:] if variable(node.func.value) == name else ()
    elif isinstance(node, ast.Assign):
        stored = (item for item in node.targets if isinstance(item, ast.Subscript))
        yield from (node.value for item in stored if variable(item.value) == name)
    elif isinstance(node, ast.AugAssign) and variable(node.target) == name:
        yield node.value


def _passed(spot: Spot, function: ast.FunctionDef, name: str) -> Place | None:
    found = only_call({spot.file or "": spot.tree}, function)
    value = found.argument(function, name) if found is not None else None
    if found is None or value is None:
        return None
    line = found.call.lineno
    return value, Spot(spot.file, spot.tree, scope_of(spot.tree, line), line)


def _called(slice_: Slice, call: ast.Call, spot: Spot) -> Iterator[Place]:
    """What a function of the program returns; else what a call gives back of what it is given."""
    function = slice_.function(call, spot)
    if function is not None:
        scope, at = function
        for item in own_nodes(scope):
            if isinstance(item, (ast.Return, ast.Yield)) and item.value is not None:
                yield item.value, structs.replace(at, scope=scope, line=item.lineno, depth=None, call=(call, spot))
    elif called_name(call) in _SAME:
        yield from ((item, spot) for item in call.args)
    elif called_name(call) in _OF_ITSELF and isinstance(call.func, ast.Attribute):
        yield call.func.value, spot
