"""An attribute that __init__ computes from others, which a method replaces without it: `items` of `src`, after prune().

By syntax alone. Whether the old value is meant is not known: what a reader says of it are these three lines.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec

from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind, set_by
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes
from pytracer.analyze.evidence.syntax.set_attributes import lines_that_set_attribute

_LEVELS = 6
_INIT = "__init__"
_LENGTHS = frozenset({"len", "shape", "size", "numel", "nbytes"})  # that a method may keep
_Methods = Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef]
_Read = tuple[str, str | None]  # an attribute, and its class where that is known: of `self`


class StaleAttribute(msgspec.Struct, frozen=True):
    """`attribute` of class `owner`, made at `line` of `sources`; `method` sets these at `set_line`; `call` calls it."""

    owner: str
    attribute: str
    file: str
    line: int
    sources: tuple[str, ...]
    method: str
    set_line: int
    call: tuple[str, int]


def stale_attribute(files: Mapping[str, ast.Module], node: ast.expr, spot: Spot) -> StaleAttribute | None:
    """The only one that the elements of a value come from."""
    read = {*_attributes(node, spot, _LEVELS)}
    found = [
        item
        for file, tree in files.items()
        for owner in nodes_of(tree)
        if isinstance(owner, ast.ClassDef)
        for item in _of_class(files, file, owner)
        if (item.attribute, owner.name) in read or (item.attribute, None) in read
    ]
    return found[0] if len({(item.owner, item.attribute) for item in found}) == 1 == len(found) else None


def _attributes(node: ast.AST, spot: Spot, left: int) -> Iterator[_Read]:
    """That the elements of a value come from, also by variables and attributes between."""
    if left == 0:
        return
    if isinstance(node, ast.Name):
        for _, value in lines_that_bind(spot.scope, node.id):
            if value is not None:
                yield from _attributes(value, spot, left - 1)
    elif isinstance(node, ast.Attribute):
        is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
        owner = class_around(spot.tree, spot.scope) if is_own else None
        yield node.attr, owner.name if owner is not None else None
        for method in _methods(owner).values() if owner is not None else ():
            inside = msgspec.structs.replace(spot, scope=method, depth=None, call=None)
            for value in _set_to(method, node.attr):
                yield from _attributes(value, inside, left - 1)
        if not is_own:
            yield from _attributes(node.value, spot, left)
    elif isinstance(node, ast.Subscript):
        yield from _attributes(node.value, spot, left)
    elif isinstance(node, ast.Call):
        for part in (node.func.value if isinstance(node.func, ast.Attribute) else None, *node.args):
            if part is not None:
                yield from _attributes(part, spot, left)


def _methods(owner: ast.ClassDef) -> _Methods:
    return {item.name: item for item in owner.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))}


def _set_to(method: ast.AST, attribute: str) -> list[ast.expr]:
    return [value for name, value, _ in _own_settings(method) if name == attribute and value is not None]


def _own_settings(method: ast.AST) -> Iterator[tuple[str, ast.expr | None, int]]:
    """Attributes of `self` that a method sets, with the value and the line."""
    for node in own_nodes(method):
        for target, value in set_by(node):
            for part in nodes_of(target):
                if isinstance(part, ast.Attribute) and ast.unparse(part.value) == "self":
                    yield part.attr, value if part is target else None, part.lineno


def _of_class(files: Mapping[str, ast.Module], file: str, owner: ast.ClassDef) -> Iterator[StaleAttribute]:
    methods = _methods(owner)
    for attribute, line, sources in _computed(methods):
        if any(_is_set_outside(tree, owner, attribute) for tree in files.values()):
            continue
        for method in methods.values():
            sets, mentioned = _reached(methods, method.name)
            replaced = [name for name in sources if name in sets and method.name != _INIT]
            calls = [*_calls(files, owner, method.name)] if replaced and attribute not in mentioned else []
            if len(calls) == 1:
                set_line = min(sets[name] for name in replaced)
                yield StaleAttribute(
                    owner.name, attribute, file, line, tuple(replaced), method.name, set_line, calls[0]
                )


def _computed(methods: _Methods) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Attributes that only __init__ computes from others: the name, the line, and these."""
    init = methods.get(_INIT)
    settings = [*_own_settings(init)] if init is not None else []
    stored = {value.id: name for name, value, _ in settings if isinstance(value, ast.Name)}
    for name, value, line in settings:
        if init is None or not isinstance(value, (ast.Call, ast.BinOp, ast.Subscript)):
            continue
        parts = [*_parts(init, value)]
        sources = [stored[item.id] for item in parts if isinstance(item, ast.Name) and item.id in stored]
        own = (item for item in parts if isinstance(item, ast.Attribute) and ast.unparse(item.value) == "self")
        sources += [item.attr for item in own if item.attr not in methods]
        if sources and name not in sources:
            yield name, line, tuple(dict.fromkeys(sources))


def _parts(init: ast.AST, value: ast.expr) -> Iterator[ast.AST]:
    """Of an expression, and of the variables in it that __init__ makes; not what only its length is taken of."""
    for item in _of_values(value):
        yield item
        made = lines_that_bind(init, item.id) if isinstance(item, ast.Name) else []
        for _, inner in made:
            yield from _of_values(inner) if inner is not None else ()


def _of_values(node: ast.AST) -> Iterator[ast.AST]:
    is_length = isinstance(node, ast.Attribute) and node.attr in _LENGTHS
    if is_length or (isinstance(node, ast.Call) and called_name(node) in _LENGTHS):
        return
    yield node
    for item in ast.iter_child_nodes(node):
        yield from _of_values(item)


def _reached(methods: _Methods, name: str) -> tuple[dict[str, int], set[str]]:
    """Attributes that a method sets, itself or by others that it calls, with the first line; and all it mentions."""
    waiting, seen, found, mentioned = [name], set[str](), dict[str, int](), set[str]()
    while waiting:
        method = methods.get(at := waiting.pop())
        if method is None or at in seen:
            continue
        seen.add(at)
        for attribute, _, line in _own_settings(method):
            found.setdefault(attribute, line)
        for node in nodes_of(method):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "super()"):
                mentioned.add(node.attr)
                waiting.append(node.attr)
    return found, mentioned


def _is_set_outside(tree: ast.Module, owner: ast.ClassDef, attribute: str) -> bool:
    """Whether a line elsewhere sets an attribute of that name, or it is a property."""
    others = [item for item in lines_that_set_attribute(tree, attribute) if item.owner != "self"]
    return bool(others) or attribute in _methods(owner)


def _calls(files: Mapping[str, ast.Module], owner: ast.ClassDef, method: str) -> Iterator[tuple[str, int]]:
    """Of a method of that name, outside of the class."""
    own = {id(item) for item in nodes_of(owner)}
    for file, tree in files.items():
        for node in nodes_of(tree):
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method
            if is_call and isinstance(node, ast.Call) and id(node) not in own:
                yield file, node.lineno
