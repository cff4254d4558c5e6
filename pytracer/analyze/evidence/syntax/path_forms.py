"""Which paths an expression may make: what the source has of each, and what stands for a value that it does not have.

Two expressions with one form, which is_settled(), name one file. A value that may be another each time settles nothing.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from pytracer.analyze.evidence.syntax.attribute_values import is_property
from pytracer.analyze.evidence.syntax.bindings import set_by
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import (
    Scope,
    all_parameters,
    class_around,
    class_named,
    classes_below,
    default_of,
    own_nodes,
    parameters,
    scope_of,
    spans,
)

_MARK = "\0"
_OPEN = f"{_MARK}?{_MARK}"  # a value that may be another one each time
_HOPS = 12
_MOST = 8  # forms
_JOINS = ("join", "joinpath", "Path", "PurePath")
_SAME = ("str", "fspath", "abspath", "realpath", "normpath", "resolve", "absolute")
_MODULES = ("os", "os.path", "path", "pathlib", "osp")
_VALUE = re.compile(f"{_MARK}[^{_MARK}]*{_MARK}")


def is_settled(form: str) -> bool:
    """Whether it is the same path whenever the expression runs."""
    return _OPEN not in form


def may_name(form: str, path: str, added: str = "") -> bool:
    """Whether a file can have it as its path; `added`: an ending that the call adds to another name."""
    shown = _plain(form)
    if ".." in shown.split("/") or shown.startswith("~"):
        return True
    names = [shown] if not added or shown.endswith(added) else [shown + added, *([shown] if _MARK in shown else [])]
    before = "" if shown.startswith("/") else f"(?:{_ANY}/)?"
    return any(re.fullmatch(before + _pattern(item), path, re.DOTALL) is not None for item in names)


_ANY = ".*"


def _plain(form: str) -> str:
    parts = [item for item in form.split("/") if item not in ("", ".")]
    return ("/" if form.startswith("/") else "") + "/".join(parts)


def _pattern(form: str) -> str:
    return _ANY.join(re.escape(item) for item in _VALUE.split(form))


class PathForms:
    """Of the program's files, all of whose calls are looked at."""

    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        self._trees = [*trees.values()]
        self._libraries = _imported(self._trees) - {os.path.splitext(os.path.basename(file))[0] for file in trees}
        self._calls = [(tree, item) for tree in self._trees for item in nodes_of(tree) if isinstance(item, ast.Call)]
        self._set = {
            item.attr
            for tree in self._trees
            for item in nodes_of(tree)
            if isinstance(item, ast.Attribute) and not isinstance(item.ctx, ast.Load)
            if not (isinstance(item.value, ast.Name) and item.value.id == "self")
        }
        self._moves = any(called_name(item) == "chdir" for _, item in self._calls)

    def of(self, tree: ast.Module, node: ast.expr) -> set[str]:
        """Never empty. A path that is not absolute is settled only where nothing changes the folder."""
        found = self._forms(_At(tree, scope_of(tree, node.lineno)), node, _HOPS)
        plain = {_plain(item) for item in found}
        return {item if item.startswith("/") or not self._moves else _OPEN + item for item in plain}

    def _forms(self, at: _At, node: ast.AST | None, hops: int) -> set[str]:
        found = set(itertools.islice(self._each(at, node, hops), _MOST + 1)) if hops else set()
        return found if 0 < len(found) <= _MOST else {_OPEN}

    def _each(self, at: _At, node: ast.AST | None, hops: int) -> Iterator[str]:
        if isinstance(node, ast.Constant):
            yield str(node.value) if isinstance(node.value, (str, int)) else _OPEN
        elif isinstance(node, ast.FormattedValue):
            plain = node.format_spec is None and node.conversion == -1
            yield from self._forms(at, node.value, hops - 1) if plain else {_OPEN}
        elif isinstance(node, ast.JoinedStr):
            yield from self._joined(at, node.values, "", hops)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Div)):
            yield from self._joined(at, (node.left, node.right), "/" if isinstance(node.op, ast.Div) else "", hops)
        elif isinstance(node, ast.Call):
            yield from self._of_call(at, node, hops)
        elif isinstance(node, ast.Name):
            yield from self._of_name(at, node.id, hops)
        elif isinstance(node, ast.Attribute):
            yield from self._of_attribute(at, node, hops)
        elif isinstance(node, ast.IfExp):
            yield from self._forms(at, node.body, hops - 1) | self._forms(at, node.orelse, hops - 1)
        else:
            yield _OPEN

    def _joined(self, at: _At, nodes: Iterable[ast.AST], between: str, hops: int) -> Iterator[str]:
        for parts in itertools.product(*(sorted(self._forms(at, item, hops - 1)) for item in nodes)):
            text = ""
            for item in parts:
                text = item if between and item.startswith("/") else (text + between if text else "") + item
            yield text

    def _of_call(self, at: _At, call: ast.Call, hops: int) -> Iterator[str]:
        name = called_name(call)
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        of_module = owner is None or ast.unparse(owner) in _MODULES
        given = [*call.args] if of_module or owner is None else [owner, *call.args]
        plain = bool(given) and not call.keywords and not any(isinstance(item, ast.Starred) for item in given)
        if plain and ((name in _JOINS and (name != "join" or of_module)) or (name in _SAME and len(given) == 1)):
            yield from self._joined(at, given, "/", hops)
        else:
            yield f"{_MARK}call {id(call)}{_MARK}" if self._runs_once(at, call.lineno, hops) else _OPEN

    def _runs_once(self, at: _At, line: int, hops: int) -> bool:
        if not hops or any(isinstance(item, LOOPS) and spans(item, line) for item in own_nodes(at.scope)):
            return False
        if isinstance(at.scope, ast.Module):
            return True
        callers = self._callers(at)
        if len(callers) != 1 or self._is_passed_on(at):
            return False
        tree, call = callers[0]
        return self._runs_once(_At(tree, scope_of(tree, call.lineno)), call.lineno, hops - 1)

    def _of_name(self, at: _At, name: str, hops: int) -> Iterator[str]:
        if _is_bound_inside(at.scope, name):
            yield _OPEN
            return
        places = [at.scope] if isinstance(at.scope, ast.Module) else [at.scope, at.tree]
        for scope in places:
            values = _bound(scope, name)
            given = name in all_parameters(scope)
            if values and (given or len(values) > 1 or values[0] is None or _is_global(at.tree, name)):
                yield from self._several(_At(at.tree, scope), values, hops)
                if given or _is_global(at.tree, name):
                    yield _OPEN
                return
            if values:
                yield from self._forms(_At(at.tree, scope), values[0], hops - 1)
                return
            if given:
                yield from self._given(_At(at.tree, scope), name, hops)
                return
        yield _OPEN if _is_bound_in(at.tree, name) else f"{_MARK}{name} {id(at.tree)}{_MARK}"  # of another file

    def _several(self, at: _At, values: list[ast.expr | None], hops: int) -> Iterator[str]:
        for value in values:
            yield from self._forms(at, value, hops - 1)

    def _given(self, at: _At, name: str, hops: int) -> Iterator[str]:
        """What the calls of its function pass for a parameter."""
        places, callers = parameters(at.scope), self._callers(at)
        if name not in places or self._is_passed_on(at):
            yield _OPEN
            return
        if not callers:
            yield f"{_MARK}{name} {id(at.scope)}{_MARK}"
        number = places.index(name) - (places[0] in ("self", "cls"))
        for tree, call in callers:
            place = _At(tree, scope_of(tree, call.lineno))
            spread: list[ast.AST] = [item for item in call.args if isinstance(item, ast.Starred)]
            spread += [item for item in call.keywords if item.arg is None]
            value = keyword_value(call, name)
            if value is None and number < len(call.args):
                value = call.args[number]
            if value is None:
                place, value = at, default_of(at.scope, name)
            yield from self._forms(place, value, hops - 1) if value is not None and not spread else {_OPEN}

    def _callers(self, at: _At) -> list[tuple[ast.Module, ast.Call]]:
        """Calls of a function by its name; of a constructor those of its class and of what is derived from it."""
        owner, name = class_around(at.tree, at.scope), getattr(at.scope, "name", None)
        if name == "__init__" and owner is not None:
            names = {owner.name, *(item.name for item in classes_below(self._trees, owner))}
            return [(tree, call) for tree, call in self._calls if called_name(call) in names]
        return [
            (tree, call)
            for tree, call in self._calls
            if called_name(call) == name and (owner is None or isinstance(call.func, ast.Attribute))
            if not (isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in self._libraries)
        ]

    def _is_passed_on(self, at: _At) -> bool:
        """Whether a function is also given to others that call it: `Process(target=main)`."""
        name = getattr(at.scope, "name", None)
        called = {id(call.func) for _, call in self._calls}
        return name is None or any(
            name in (getattr(item, "id", None), getattr(item, "attr", None)) and id(item) not in called
            for tree in self._trees
            for item in nodes_of(tree)
            if isinstance(item, (ast.Name, ast.Attribute))
        )

    def _of_attribute(self, at: _At, node: ast.Attribute, hops: int) -> Iterator[str]:
        owner, tree = self._class_of(at, node.value, hops)
        if owner is not None:
            own = {*self._attribute(tree, owner, node.attr, hops)}
            below = [each for each in classes_below([tree], owner) if [*_held(each, node.attr)]]
            yield from own or (() if below else {_OPEN})
            for each in below:
                yield from self._attribute(tree, each, node.attr, hops)
            if node.attr in self._set:
                yield _OPEN
            return
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            yield _OPEN
            return
        for form in self._forms(at, node.value, hops - 1):
            settled = form.startswith(_MARK) and form.count(_MARK) == 2 and is_settled(form)
            yield f"{form[:-1]}.{node.attr}{_MARK}" if settled and node.attr not in self._set else _OPEN

    def _class_of(self, at: _At, node: ast.AST, hops: int) -> tuple[ast.ClassDef | None, ast.Module]:
        """Of `self`, and of what the scope or its object makes by a call of a class of the file."""
        around = class_around(at.tree, at.scope)
        values: list[ast.expr | None] = []
        if isinstance(node, ast.Name):
            if node.id == "self":
                return around, at.tree
            values = _bound(at.scope, node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            values = [value for value, _ in _held(around, node.attr)] if around is not None else []
        value = values[0] if len(values) == 1 else None
        if hops and isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            return class_named(at.tree, value.func.id), at.tree
        return None, at.tree

    def _attribute(self, tree: ast.Module, owner: ast.ClassDef, name: str, hops: int) -> Iterator[str]:
        """What a class has for it, or else those above it; nothing where none of the file has."""
        held = [*_held(owner, name)]
        if held:
            for value, method in held:
                found = self._forms(_At(tree, method if method is not None else tree), value, hops - 1)
                steady = method is None or method.name == "__init__" or is_property(method)
                yield from found if steady else {_OPEN, *found}
            return
        above = [class_named(tree, item.id) if isinstance(item, ast.Name) else None for item in owner.bases]
        for each in above if hops else ():
            if each is not None:
                yield from self._attribute(tree, each, name, hops - 1)


class _At(msgspec.Struct, frozen=True):
    """Where an expression stands."""

    tree: ast.Module
    scope: Scope


def _bound(scope: ast.AST, name: str) -> list[ast.expr | None]:
    """What lines of a scope bind a variable to; None for what is not an expression alone."""
    found: list[ast.expr | None] = []
    for item in own_nodes(scope):
        if isinstance(item, ast.AugAssign) and isinstance(item.target, ast.Name) and item.target.id == name:
            found.append(None)
        for target, value in set_by(item):
            if isinstance(target, ast.Name) and target.id == name:
                found.append(value)
            elif any(isinstance(part, ast.Name) and part.id == name for part in nodes_of(target)):
                found += [None] if isinstance(target, (ast.Tuple, ast.List, ast.Starred)) else []
    return found


def _is_bound_inside(scope: ast.AST, name: str) -> bool:
    """By a comprehension or a lambda of one of its lines."""
    for item in own_nodes(scope):
        targets = [item.target] if isinstance(item, ast.comprehension) else []
        if isinstance(item, ast.Lambda) and name in all_parameters(item):
            return True
        if any(isinstance(part, ast.Name) and part.id == name for target in targets for part in nodes_of(target)):
            return True
    return False


def _is_bound_in(tree: ast.Module, name: str) -> bool:
    """Anywhere: by a function around, for one."""
    return any(
        (isinstance(item, ast.Name) and item.id == name and not isinstance(item.ctx, ast.Load))
        or (isinstance(item, ast.arg) and item.arg == name)
        for item in nodes_of(tree)
    )


def _is_global(tree: ast.Module, name: str) -> bool:
    return any(isinstance(item, (ast.Global, ast.Nonlocal)) and name in item.names for item in nodes_of(tree))


def _held(owner: ast.ClassDef, name: str) -> Iterator[tuple[ast.expr | None, ast.FunctionDef | None]]:
    """What a class itself has for an attribute, with the method or property that does."""
    for item in owner.body:
        if isinstance(item, ast.FunctionDef) and item.name == name and is_property(item):
            for part in own_nodes(item):
                if isinstance(part, ast.Return):
                    yield part.value, item
        elif isinstance(item, ast.FunctionDef):
            for part in own_nodes(item):
                for target, value in set_by(part):
                    if isinstance(target, ast.Attribute) and ast.unparse(target) == f"self.{name}":
                        yield value, item
        else:
            for target, value in set_by(item):
                if isinstance(target, ast.Name) and target.id == name:
                    yield value, None


def _imported(trees: Iterable[ast.Module]) -> set[str]:
    found = (item for tree in trees for item in nodes_of(tree) if isinstance(item, ast.Import))
    return {(part.asname or part.name).partition(".")[0] for item in found for part in item.names}
