"""The lines that put away what a later line reads: in an attribute, or in a list or dict, also from within a hook.

By syntax alone: the container that the line reads is known by its name or attribute, in all files of the program.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.keepers import Files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import each_set, is_empty_container
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Function, own_nodes, parameters, spans

_HOPS = 6
_ITERATES = frozenset({"sorted", "list", "tuple", "reversed", "enumerate", "zip", "iter", "set"})
_READS = frozenset({"items", "values", "get", "pop", "popleft", "copy"})
_FILLS = frozenset({"append", "appendleft", "add", "insert", "setdefault", "put", "extend"})
_SAME_TENSOR = frozenset({"detach", "view", "t", "view_as", "requires_grad_", "squeeze", "unsqueeze", "getattr"})


class KeptLine(msgspec.Struct, frozen=True):
    """A statement that puts `value` away; `tree` is its file's."""

    file: str
    tree: ast.Module
    node: ast.stmt
    value: ast.expr


def lines_that_keep(files: Files, back: Slice, name: str, spot: Spot) -> list[KeptLine]:
    """Of what a variable of a line holds; nothing where it is not read from what a line fills."""
    node = _read_from(back, ast.parse(name, mode="eval").body, spot)
    if node is None:
        return []
    found = [item for file, tree in files.items() for item in _kept(file, tree, *node)]
    return list({(item.file, item.node.lineno): item for item in found}.values())


def is_same_tensor(value: ast.expr) -> bool:
    """Whether what is put away has the memory of a variable or attribute, and is no copy."""
    while isinstance(value, ast.Call) and called_name(value) in _SAME_TENSOR:
        if isinstance(value.func, ast.Attribute):
            value = value.func.value
        elif value.args:
            value = value.args[0]
        else:
            return False
    if isinstance(value, (ast.Tuple, ast.List)):
        return any(map(is_same_tensor, value.elts))
    return isinstance(value, (ast.Name, ast.Attribute, ast.Subscript))


def kept_in(tree: ast.AST, of: str) -> Iterator[tuple[ast.stmt, ast.expr]]:
    """Statements that set or fill what is called so (`self.x`, `rows`), anywhere below a node, with the value."""
    for node in nodes_of(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            for target, value in _sets(node, node.value):
                at = target.value if isinstance(target, ast.Subscript) else target
                whole = at is target and isinstance(at, ast.Name)  # another container, not an item of this one
                if _called(at) == of and not whole and not is_none(value) and not is_empty_container(value):
                    yield node, value
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and called_name(node.value) in _FILLS:
            call = node.value
            if isinstance(call.func, ast.Attribute) and _called(call.func.value) == of and call.args:
                yield node, call.args[-1]


def _sets(node: ast.Assign | ast.AnnAssign, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What a statement sets, with its value; of `self.a, self.b = a, b` the attributes only."""
    if isinstance(node, ast.AnnAssign):
        yield node.target, value
        return
    for target, given in each_set(node.targets, value):
        if target in node.targets or isinstance(target, ast.Attribute):
            yield target, given


def _called(node: ast.AST) -> str | None:
    """`.x` of `self.x` and of `layer.x`: an attribute of any object; `x` of a variable."""
    if isinstance(node, ast.Attribute):
        return f".{node.attr}"
    return node.id if isinstance(node, ast.Name) else None


def _kept(file: str, tree: ast.Module, node: ast.Name | ast.Attribute, spot: Spot) -> Iterator[KeptLine]:
    name = _called(node) or ""
    places: list[tuple[ast.AST, str]] = [(tree, name)] if isinstance(node, ast.Attribute) else []
    if isinstance(node, ast.Name) and file == spot.file:
        functions = {
            item.name: item for item in nodes_of(tree) if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))
        }
        calls = [item for item in own_nodes(spot.scope) if isinstance(item, ast.Call)]
        places += [(spot.scope, name), *_given_to(calls, functions, name)]
    for place, called in places:
        yield from (KeptLine(file, tree, statement, value) for statement, value in kept_in(place, called))


def _given_to(
    calls: Sequence[ast.Call], functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef], name: str
) -> Iterator[tuple[Function, str]]:
    """Functions that a container is passed to, with their own name for it."""
    for call in calls:
        function = functions.get(called_name(call) or "")
        if function is None:
            continue
        for parameter in parameters(function):
            given = argument_of(call, function, parameter)
            if isinstance(given, ast.Name) and given.id == name:
                yield function, parameter


def _read_from(back: Slice, node: ast.expr, spot: Spot) -> tuple[ast.Name | ast.Attribute, Spot] | None:
    """The variable or attribute that a value was taken out of."""
    for _ in range(_HOPS):
        inner = _container(node)
        if isinstance(inner, ast.Attribute):
            return inner, spot
        if not isinstance(inner, ast.Name):
            return None
        source = _looped(spot, inner.id)
        if source is not None:
            node = source
            continue
        made = back.made(inner, spot, calls=False)
        if made.node is inner:
            return inner, spot
        if not isinstance(made.node, ast.expr) or is_empty_container(made.node):
            last, _ = made.through[-1]
            return (last, made.spot) if isinstance(last, (ast.Name, ast.Attribute)) else None
        node, spot = made.node, structs.replace(made.spot, line=made.line)
    return None


def _container(node: ast.expr) -> ast.expr:
    """`x` of `x[key]`, `x.items()`, `sorted(x)` and `x.get(key)`."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _READS:
            node = node.func.value
        elif isinstance(node, ast.Call) and called_name(node) in _ITERATES and len(node.args) == 1:
            node = node.args[0]
        else:
            return node


def _looped(spot: Spot, name: str) -> ast.expr | None:
    """What the loop or comprehension around a line goes through, whose variable it is."""
    for node in nodes_of(spot.tree):
        heads: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)) and spans(node, spot.line):
            heads = [(item.target, item.iter) for item in node.generators]
        elif isinstance(node, (ast.For, ast.AsyncFor)) and spans(node, spot.line):
            heads = [(node.target, node.iter)]
        for target, source in heads:
            if any(isinstance(item, ast.Name) and item.id == name for item in nodes_of(target)):
                return source
    return None
