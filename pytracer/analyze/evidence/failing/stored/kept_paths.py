"""Paths that a program keeps in a list of an object, such as its best checkpoints: what it stores there, and by what.

`self.kept.append((loss, path)); self.kept.sort()`, and later `os.remove(old)` for those beyond the first ones. Each
rank has such a list of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.callers import calls_named
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import is_parameter, own_nodes, scope_of

_HOPS = 6
_ADDS = ("append", "insert", "add", "push", "heappush", "appendleft")
_PICKS = (
    "min",
    "max",
    "sorted",
    "list",
    "reversed",
    "next",
    "iter",
    "tuple",
    "nsmallest",
    "nlargest",
    "values",
    "items",
)
_TAKES = ("pop", "popleft", "popitem", "get", "heappop")
_SHARES = ("reduce", "gather", "broadcast")
_PLAIN = ("item", "float", "mean", "sum", "round", "sqrt", "exp", "cpu", "detach", "len", "numpy")
_MEASURED = Pattern(r"(?i)loss|acc|metric|score|err|ppl|perplexity|f1|auc|iou|bleu|wer|psnr|value|fitness")
_DEEPEST = 4


class KeptPath(msgspec.Struct, frozen=True):
    """`path` at `spot` is stored in the attribute `name`, beside `by`, which the list may be ordered by."""

    name: str
    path: ast.expr
    spot: Spot
    by: ast.expr | None


def kept_paths(at: FailingLine, node: ast.AST, spot: Spot) -> Iterator[KeptPath]:
    """What is stored in the list that an expression takes an item of."""
    name = _list_of(at, node, spot, _HOPS)
    if name is None:
        return
    for file, tree in at.files.items():
        for stored, line in _stored(tree, name):
            items = stored.elts if isinstance(stored, (ast.Tuple, ast.List)) else [stored]
            for item in items:
                others = [one for one in items if one is not item]
                by = others[0] if len(others) == 1 and isinstance(others[0], (ast.Name, ast.Attribute)) else None
                yield KeptPath(name, item, Spot(file, tree, scope_of(tree, line), line), by)


def own_measure(at: FailingLine, kept: KeptPath) -> str | None:
    """`val_loss`, where each rank measures it by itself: by functions of the program that call no collective."""
    name = _last(kept.by) if isinstance(kept.by, (ast.Name, ast.Attribute)) else ""
    if not isinstance(kept.by, ast.Name) or not _MEASURED.search(name) or _is_given(at, name):
        return None
    values = [*_values(at, kept.by, kept.spot, _HOPS)]
    calls = [called_name(item) or "" for value in values for item in nodes_of(value) if isinstance(item, ast.Call)]
    return name if calls and all(call in _PLAIN or _is_own(at, call, _DEEPEST) for call in calls) else None


def _values(at: FailingLine, node: ast.expr, spot: Spot, left: int) -> Iterator[ast.expr]:
    """What a variable was set to, also where a caller passes it."""
    if not isinstance(node, ast.Name):
        yield node
        return
    sets = [
        item
        for item in own_nodes(spot.scope)
        if isinstance(item, ast.Assign) and any(_has(target, node.id) for target in item.targets)
    ]
    if not sets and left and isinstance(spot.scope, ast.FunctionDef) and is_parameter(spot.scope, node.id):
        for file, tree, call in calls_named(at.files, spot.scope.name):
            given = argument_of(call, spot.scope, node.id)
            outer = Spot(file, tree, scope_of(tree, call.lineno), call.lineno)
            yield from _values(at, given, outer, left - 1) if given is not None else ()
    yield from (item.value for item in sets)


def _is_own(at: FailingLine, name: str, left: int) -> bool:
    """Whether a function is the program's, and neither it nor what it calls there is a collective."""
    found = [
        item
        for tree in at.files.values()
        for item in nodes_of(tree)
        if isinstance(item, ast.FunctionDef) and item.name == name
    ]
    calls = {called_name(node) or "" for item in found for node in nodes_of(item) if isinstance(node, ast.Call)}
    if not found or not left or any(part in call for call in calls for part in _SHARES) or "compute" in calls:
        return False
    inner = {item.name for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.FunctionDef)}
    return all(_is_own(at, call, left - 1) for call in (calls & inner) - {name, "forward", "__init__"})


def _is_given(at: FailingLine, name: str) -> bool:
    """Whether a collective is given a variable of that name."""
    for tree in at.files.values():
        for call in (item for item in nodes_of(tree) if isinstance(item, ast.Call)):
            if not any(part in (called_name(call) or "") for part in _SHARES):
                continue
            given = [*call.args, *(word.value for word in call.keywords)]
            parts = (part for item in given for part in nodes_of(item))
            if any(isinstance(part, (ast.Name, ast.Attribute)) and _last(part) == name for part in parts):
                return True
    return False


def _last(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _list_of(at: FailingLine, node: ast.AST, spot: Spot, left: int) -> str | None:
    """The attribute whose item an expression is: through properties, methods, loops and slices."""
    if not left:
        return None
    if isinstance(node, (ast.Subscript, ast.Starred)):
        return _list_of(at, node.value, spot, left - 1)
    if isinstance(node, ast.Call):
        name = called_name(node)
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if name in _PICKS or name in _TAKES:
            inner = node.args[0] if node.args and not (name in _TAKES and name != "heappop") else owner
            return _list_of(at, inner, spot, left - 1) if inner is not None else None
        return _returned(at, name, left) if name is not None and owner is not None else None
    if isinstance(node, ast.Attribute):
        return _returned(at, node.attr, left) or (node.attr if _is_filled(at, node.attr) else None)
    if not isinstance(node, ast.Name):
        return None
    for loop in loops_around(spot.tree, spot.line):
        if not isinstance(loop, ast.While) and node.id in {
            i.id for i in nodes_of(loop.target) if isinstance(i, ast.Name)
        }:
            return _list_of(at, loop.iter, spot, left - 1)
    bound = [
        item
        for item in own_nodes(spot.scope)
        if isinstance(item, ast.Assign)
        and item.lineno <= spot.line
        and any(_has(target, node.id) for target in item.targets)
    ]
    return _list_of(at, bound[0].value, spot, left - 1) if len(bound) == 1 else None


def _has(target: ast.AST, name: str) -> bool:
    return any(isinstance(item, ast.Name) and item.id == name for item in nodes_of(target))


def _returned(at: FailingLine, name: str, left: int) -> str | None:
    """Of a property or a method of the program that only returns such an item."""
    found = [
        (file, tree, item)
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.FunctionDef) and item.name == name
    ]
    if len(found) != 1:
        return None
    file, tree, function = found[0]
    values = [item.value for item in own_nodes(function) if isinstance(item, ast.Return) and item.value is not None]
    if len(values) != 1:
        return None
    return _list_of(at, values[0], Spot(file, tree, function, values[0].lineno), left - 1)


def _is_filled(at: FailingLine, name: str) -> bool:
    return any(True for tree in at.files.values() for _ in _stored(tree, name))


def _stored(tree: ast.Module, name: str) -> Iterator[tuple[ast.expr, int]]:
    """What is added to an attribute of that name, and where."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Call) and called_name(node) in _ADDS and node.args:
            owner = node.func.value if isinstance(node.func, ast.Attribute) else None
            into = node.args[0] if called_name(node) == "heappush" else owner
            if isinstance(into, ast.Attribute) and into.attr == name:
                yield node.args[-1], node.lineno
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
            into = node.targets[0].value
            if isinstance(into, ast.Attribute) and into.attr == name:
                yield node.value, node.lineno
