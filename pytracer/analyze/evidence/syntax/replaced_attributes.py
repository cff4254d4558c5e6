"""Functions of modules that a program puts out of use: `os.fork = None`, and `setattr(os, name, None)` in a loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.imports import imported_names
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of

_MOST = 400  # attributes of one statement
_OF_SETATTR, _OF_DELATTR = 3, 2  # arguments
_TABLES = ("vars", "__dict__")
_Values = Mapping[str, ast.expr]


class ReplacedAttribute(msgspec.Struct, frozen=True):
    """`os.fork`, which `node` sets to `value`; None: it deletes it."""

    name: str
    node: ast.AST
    line: int
    value: ast.expr | None


class _Change(msgspec.Struct, frozen=True):
    """`owner` and `attribute` as the statement has them: perhaps variables of loops around it."""

    owner: ast.expr
    attribute: ast.expr
    node: ast.AST
    line: int
    value: ast.expr | None


def replaced_attributes(tree: ast.Module) -> Iterator[ReplacedAttribute]:
    """Of imported modules and of `builtins`, by the name in full."""
    names = imported_names(tree)
    for change in _changes(tree):
        for values in _values_of_loops(tree, change.node, change.line):
            attribute = _value(change.attribute, values)
            owner = _module(_value(change.owner, values), names)
            if owner is not None and isinstance(attribute, ast.Constant) and isinstance(attribute.value, str):
                yield ReplacedAttribute(f"{owner}.{attribute.value}", change.node, change.line, change.value)


def _changes(tree: ast.Module) -> Iterator[_Change]:
    for node in nodes_of(tree):
        if isinstance(node, (ast.Assign, ast.Delete)):
            value = node.value if isinstance(node, ast.Assign) else None
            for target in node.targets:
                place = _of_target(target)
                if place is not None:
                    yield _Change(*place, node, node.lineno, value)
        elif isinstance(node, ast.Call) and called_name(node) == "setattr" and len(node.args) == _OF_SETATTR:
            yield _Change(node.args[0], node.args[1], node, node.lineno, node.args[2])
        elif isinstance(node, ast.Call) and called_name(node) == "delattr" and len(node.args) == _OF_DELATTR:
            yield _Change(node.args[0], node.args[1], node, node.lineno, None)


def _of_target(target: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """Of `os.fork`, of `os.__dict__["fork"]` and of `vars(os)[name]`."""
    if isinstance(target, ast.Attribute):
        return target.value, ast.Constant(target.attr)
    if not isinstance(target, ast.Subscript):
        return None
    table = target.value
    if isinstance(table, ast.Attribute) and table.attr in _TABLES:
        return table.value, target.slice
    if isinstance(table, ast.Call) and called_name(table) in _TABLES and len(table.args) == 1:
        return table.args[0], target.slice
    return None


def _module(node: ast.expr, names: Mapping[str, str]) -> str | None:
    """`os`, `multiprocessing.context`; `builtins` of `__builtins__`."""
    inner: list[str] = []
    while isinstance(node, ast.Attribute):
        inner.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    origin = "builtins" if node.id == "__builtins__" else names.get(node.id)
    return ".".join([origin, *inner]) if origin is not None else None


def _values_of_loops(tree: ast.Module, node: ast.AST, line: int) -> Sequence[_Values]:
    """What the variables of the loops around a node are, round by round; of what is not written down, nothing."""
    rounds: Sequence[_Values] = [{}]
    for loop in _loops_around(tree, node):
        rounds = [
            {**before, **_bound(loop.target, item)}
            for before in rounds
            for item in _items(tree, line, _value(loop.iter, before), before)
        ][:_MOST]
    return rounds


def _loops_around(tree: ast.Module, node: ast.AST) -> list[ast.For | ast.comprehension]:
    """Also those of comprehensions, and of a loop that has one line; the outermost first."""
    found: list[ast.For | ast.comprehension] = []
    for item in nodes_of(tree):
        if isinstance(item, ast.For) and any(part is node for inner in item.body for part in nodes_of(inner)):
            found.append(item)
        elif isinstance(item, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            found += item.generators if any(part is node for part in nodes_of(item.elt)) else []
    return found


def _items(tree: ast.Module, line: int, node: ast.expr, values: _Values) -> list[ast.expr]:
    """Of `("fork", "kill")`, `"fork kill".split()`, `{os: (...)}.items()`, and of a name for one of these."""
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return [_value(item, values) for item in node.elts]
    if isinstance(node, ast.Dict):
        return [*filter(None, node.keys)]
    if isinstance(node, ast.Name):
        made = _made(tree, line, node.id)
        return _items(tree, line, made, values) if made is not None and not isinstance(made, ast.Name) else []
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.args:
        return []
    owner, method = node.func.value, node.func.attr
    if isinstance(owner, ast.Constant) and isinstance(owner.value, str) and method == "split":
        return [ast.Constant(word) for word in owner.value.split()]
    if isinstance(owner, ast.Name):
        owner = _made(tree, line, owner.id) or owner
    if isinstance(owner, ast.Dict) and method == "items":
        pairs = zip(owner.keys, owner.values, strict=True)
        return [ast.Tuple([key, value], ast.Load()) for key, value in pairs if key is not None]
    return []


def _made(tree: ast.Module, line: int, name: str) -> ast.expr | None:
    """What the only line of a function, or of the module, gives a variable."""
    bound = [item for scope in (scope_of(tree, line), tree) for _, item in lines_that_bind(scope, name)]
    made = {id(item): item for item in bound}
    only = next(iter(made.values())) if len(made) == 1 else None
    return only if isinstance(only, ast.expr) else None


def _bound(target: ast.expr, item: ast.expr) -> dict[str, ast.expr]:
    if isinstance(target, ast.Name):
        return {target.id: item}
    if isinstance(target, ast.Tuple) and isinstance(item, (ast.Tuple, ast.List)) and len(target.elts) == len(item.elts):
        return {name.id: part for name, part in zip(target.elts, item.elts, strict=True) if isinstance(name, ast.Name)}
    return {}


def _value(node: ast.expr, values: _Values) -> ast.expr:
    return values.get(node.id, node) if isinstance(node, ast.Name) else node
