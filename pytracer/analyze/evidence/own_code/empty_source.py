"""The entry of a literal that makes a count 0: `"brand": []` of a dict whose lists give the widths of layers.

Only followed through names, loops, comprehensions and the one call that passes a parameter; whatever else a program
does with the value is not known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.syntax.bindings import is_empty_container, lines_that_fill
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import COMPREHENSIONS
from pytracer.analyze.evidence.syntax.names import bare_names
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, is_parameter, own_nodes, scope_of

_HOPS = 8
_OF_ITEMS = ("items", "values", "keys", "get", "enumerate", "sorted", "list", "tuple", "len", "int")
_QUOTED = 50
_LITERALS = (ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict)


class EmptySource(msgspec.Struct, frozen=True):
    """`text` is what is empty or 0, at `line` of `file`: `'brand': []`."""

    file: str
    line: int
    text: str


def empty_source(files: Mapping[str, ast.Module], file: str, node: ast.expr) -> EmptySource | None:
    """Of `len(labels)`, `cfg["classes"]`: the only entry that is empty or 0 of the literal that this comes from."""
    found = _follow(files, file, node, None, _HOPS)
    return found[0] if found is not None and len(found) == 1 else None


def is_never_empty(files: Mapping[str, ast.Module], file: str, node: ast.expr) -> bool:
    """Whether it comes from a literal of which no entry is empty or 0."""
    return _follow(files, file, node, None, _HOPS) == []


def _follow(
    files: Mapping[str, ast.Module], file: str, node: ast.AST, key: object, hops: int
) -> list[EmptySource] | None:
    if hops == 0:
        return None
    literal = _of_literal(file, node, key)
    if literal is not None:
        return literal
    if isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        return _follow(files, file, node.value, key, hops - 1)
    if isinstance(node, ast.Call) and called_name(node) in _OF_ITEMS:
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        inner = owner if owner is not None else (node.args[0] if node.args else None)
        got = node.args[0] if called_name(node) == "get" and node.args else None
        key = got.value if isinstance(got, ast.Constant) else key
        return _follow(files, file, inner, key, hops - 1) if inner is not None else None
    if not isinstance(node, ast.Name):
        return None
    values = list(_values(files, file, node))
    if len(values) != 1 or any(lines_that_fill(item, node.id) for item in nodes_of(files[file]) if _is_scope(item)):
        return None
    return _follow(files, values[0][0], values[0][1], key, hops - 1)


def _of_literal(file: str, node: ast.AST, key: object) -> list[EmptySource] | None:
    """Its entries that are empty or 0; None of what is no literal, or has no such entry but others than literals."""
    if isinstance(node, ast.Dict):
        entries = [
            (f"{ast.unparse(name)}: {ast.unparse(value)}", value)
            for name, value in zip(node.keys, node.values, strict=True)
            if name is not None and (key is None or (isinstance(name, ast.Constant) and name.value == key))
        ]
    elif isinstance(node, (ast.List, ast.Tuple)) and node.elts:
        if any(isinstance(item, ast.Tuple) for item in node.elts):  # of which one is meant
            return None
        entries = [(ast.unparse(item), item) for item in node.elts]
    elif isinstance(node, ast.expr) and (isinstance(node, ast.Constant) or _is_empty(node)):
        entries = [(ast.unparse(node), node)]
    else:
        return None
    empty = [EmptySource(file, value.lineno, shortened(text, _QUOTED)) for text, value in entries if _is_empty(value)]
    return empty if empty or all(isinstance(value, _LITERALS) for _, value in entries) else None


def _is_empty(node: ast.expr) -> bool:
    return is_empty_container(node) or (isinstance(node, ast.Constant) and type(node.value) is int and not node.value)


def _values(files: Mapping[str, ast.Module], file: str, name: ast.Name) -> Iterator[tuple[str, ast.AST]]:
    """What the name is bound to where it is read: in a comprehension around it, the function, or the module."""
    tree = files[file]
    for node in nodes_of(tree):
        if isinstance(node, COMPREHENSIONS) and any(item is name for item in nodes_of(node)):
            around = [item for item in node.generators if name.id in bare_names(item.target)]
            if around:
                yield file, around[-1].iter
                return
    scope = scope_of(tree, name.lineno)
    bound = [item for item in bindings_of(scope, name.id) if item[0] <= name.lineno]
    if bound:
        value = _bound(scope, *bound[-1])
        yield from ((file, value) for value in (value,) if value is not None)
    elif isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)) and is_parameter(scope, name.id):
        yield from _passed(files, tree, scope, name.id)
    else:
        yield from ((file, value) for item in bindings_of(tree, name.id) if (value := _bound(tree, *item)) is not None)


def _bound(scope: ast.AST, line: int, value: ast.AST | None, place: int | None) -> ast.AST | None:
    """What is assigned, or that a loop goes over; of several at once the one at that place."""
    if value is None:
        loops = (item for item in own_nodes(scope) if isinstance(item, ast.For) and item.lineno == line)
        loop = next(loops, None)
        return loop.iter if loop is not None else None
    if place is None:
        return value
    return value.elts[place] if isinstance(value, (ast.Tuple, ast.List)) and place < len(value.elts) else None


def _is_scope(node: ast.AST) -> bool:
    return isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef))


def _passed(
    files: Mapping[str, ast.Module], tree: ast.Module, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str
) -> Iterator[tuple[str, ast.AST]]:
    """What each call of the function passes, or each construction of the class whose `__init__` it is."""
    owner = class_around(tree, function)
    called = owner.name if owner is not None and function.name == "__init__" else function.name
    for file, other in files.items():
        for call in nodes_of(other):
            if isinstance(call, ast.Call) and called_name(call) == called:
                value = argument_of(call, function, name)
                if value is not None:
                    yield file, value
