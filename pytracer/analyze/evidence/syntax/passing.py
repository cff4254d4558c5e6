"""The names of one object in a file: of the variable, and of the parameters that it is passed as."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from pytracer.analyze.evidence.syntax.bindings import each_set
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import callee_named, own_nodes, parameters

_ROUNDS = 3
_SPAWN = "spawn"  # torch.multiprocessing: the function gets its number first


def names_of_object(tree: ast.Module, name: str) -> frozenset[str]:
    """By name only, so that two objects of one name are one: `Process(target=f, args=(ready,))` makes `ready` f's."""
    return _reached(tree, name, _ROUNDS)


def all_names_of_object(tree: ast.Module, name: str) -> frozenset[str]:
    """Through as many calls as there are."""
    return _reached(tree, name, None)


def _reached(tree: ast.Module, name: str, rounds: int | None) -> frozenset[str]:
    beside = _beside(tree)
    names, last = {name}, {name}
    while last and rounds != 0:
        last = {other for item in last for other in beside.get(item, ())} - names
        names |= last
        rounds = rounds - 1 if rounds is not None else None
    return frozenset(names)


@lru_cache(maxsize=64)  # asked for each object that is followed, of few files
def _beside(tree: ast.Module) -> dict[str, set[str]]:
    """What each name is passed as, or is passed for."""
    found: dict[str, set[str]] = {}
    for one, other in _passed(tree):
        found.setdefault(one, set()).add(other)
        found.setdefault(other, set()).add(one)
    return found


def _passed(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """A parameter and the name of what is passed for it; an attribute, and the parameter that it keeps."""
    for item in nodes_of(tree):
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _kept(item)
        if not isinstance(item, ast.Call):
            continue
        words = {word.arg: word.value for word in item.keywords if word.arg is not None}
        target, given = words.get("target"), words.get("args")
        if target is None and _last(item.func) == _SPAWN and item.args:
            target, first = item.args[0], 1
            given = given if given is not None else item.args[1] if len(item.args) > 1 else None
        else:
            first = 0
        if target is not None and isinstance(given, (ast.Tuple, ast.List)):
            yield from _pairs(tree, target, first, given.elts, {})
        elif target is None:
            yield from _pairs(tree, item.func, 0, item.args, words)


def _kept(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, str]]:
    """`out` of `self.queue = out`, where `out` is a parameter."""
    given = parameters(function)
    for item in own_nodes(function):
        for target, value in each_set(item.targets, item.value) if isinstance(item, ast.Assign) else ():
            if isinstance(target, ast.Attribute) and isinstance(value, ast.Name) and value.id in given:
                yield target.attr, value.id


def _pairs(
    tree: ast.Module, function: ast.expr, first: int, values: list[ast.expr], words: dict[str, ast.expr]
) -> Iterator[tuple[str, str]]:
    name = _last(function)
    found = callee_named(tree, name) if name is not None else None
    if found is None:
        return
    taken = [word for word in parameters(found) if word not in ("self", "cls")][first:]
    for parameter, value in [*zip(taken, values, strict=False), *words.items()]:
        passed = _last(value)
        if passed is not None and parameter in parameters(found):
            yield parameter, passed


def _last(node: ast.expr) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None
