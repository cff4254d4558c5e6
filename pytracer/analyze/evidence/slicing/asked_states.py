"""What a condition asks that a program keeps and changes: `state.bad` of `while self.should_go_on(state):`.

Followed through the functions, methods, properties and variables of the program that the condition goes by. Nothing is
said where one of these shares a value between ranks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.callers import called_function, only_function
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, own_nodes, scope_of
from pytracer.analyze.evidence.syntax.sharing import may_share

Files = Mapping[str, ast.Module]
_MOST_NODES, _DEEPEST = 200, 24


class AskedState(msgspec.Struct, frozen=True):
    """`node`: as it is asked, at `spot`; `limit`: what it is compared with.

    `key`: the name of the attribute, of the item of a dict, or of the variable of `scope`.
    """

    node: ast.expr
    spot: Spot
    key: str
    limit: ast.expr | None = None
    scope: Scope | None = None

    def is_meant(self, node: ast.AST, tree: ast.Module) -> bool:
        """Whether an expression of a file may be the same."""
        if self.scope is not None:
            return isinstance(node, ast.Name) and node.id == self.key and scope_of(tree, node.lineno) is self.scope
        return not isinstance(node, ast.Name) and key_of(node) == self.key and not self._is_of_another(node, tree)

    def _is_of_another(self, node: ast.AST, tree: ast.Module) -> bool:
        """Whether both are attributes of `self`, in classes of which none is derived."""
        own, other = _own_class(self.node, self.spot.tree), _own_class(node, tree)
        if own is None or other is None or own is other:
            return False
        return other.name not in _names(own) and own.name not in _names(other)


def _own_class(node: ast.AST, tree: ast.Module) -> ast.ClassDef | None:
    """That of the method in which `self.x` stands."""
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return class_around(tree, scope_of(tree, node.lineno)) if own and isinstance(node, ast.Attribute) else None


def _names(kind: ast.ClassDef) -> set[str]:
    return {ast.unparse(item) for item in kind.bases}


def key_of(node: ast.AST) -> str | None:
    """`bad` of `state.bad`, of `state["bad"]` and of `bad`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        key = node.slice
        return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None
    return node.id if isinstance(node, ast.Name) else None


def asked_states(files: Files, test: ast.expr, spot: Spot) -> list[AskedState]:
    """Those of a condition at a place; none where a value that is shared between ranks may be part of it."""
    search = _Search(files)
    search.go(test, spot)
    return [] if search.shared else search.found


def is_shared_anywhere(files: Files, state: AskedState) -> bool:
    """Whether a call that may share between ranks is given it, or the object that has it, in any file."""
    owner = state.node.value if isinstance(state.node, (ast.Attribute, ast.Subscript)) else None
    name = owner.id if isinstance(owner, ast.Name) and owner.id != "self" else None
    for tree in files.values():
        for call in (item for item in nodes_of(tree) if isinstance(item, ast.Call)):
            if not may_share(call) or only_function(files, called_name(call) or "") is not None:
                continue
            for part in (part for value in passed_values(call) for part in nodes_of(value)):
                if state.is_meant(part, tree):
                    return True
            if name is not None and any(_is_whole(value, name) for value in passed_values(call)):
                return True
    return False


def _is_whole(value: ast.expr, name: str) -> bool:
    """`state` and `[state]`, not `state.model`."""
    of = {id(item.value) for item in nodes_of(value) if isinstance(item, (ast.Attribute, ast.Subscript))}
    return any(isinstance(item, ast.Name) and item.id == name and id(item) not in of for item in nodes_of(value))


class _Search:
    def __init__(self, files: Files) -> None:
        self.found: list[AskedState] = []
        self.shared = False
        self._files = files
        self._seen: set[int] = set()
        self._depth = 0

    def go(self, node: ast.expr, spot: Spot, limit: ast.expr | None = None) -> None:
        """Through an expression at a place. What goes deeper than can be followed may be shared."""
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        if len(self._seen) > _MOST_NODES or self._depth >= _DEEPEST:
            self.shared = True
            return
        self._depth += 1
        self._go(node, spot, limit)
        self._depth -= 1

    def _go(self, node: ast.expr, spot: Spot, limit: ast.expr | None) -> None:
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            self.go(node.left, spot, node.comparators[0])
            self.go(node.comparators[0], spot, node.left)
        elif isinstance(node, ast.Call):
            self._call(node, spot)
        elif isinstance(node, ast.Name):
            self._name(node, spot, limit)
        elif isinstance(node, (ast.Attribute, ast.Subscript)):
            self._held(node, spot, limit)
        else:
            for item in ast.iter_child_nodes(node):
                if isinstance(item, ast.expr):
                    self.go(item, spot)

    def _call(self, call: ast.Call, spot: Spot) -> None:
        own = called_function(self._files, spot.tree, call)
        if own is not None:
            self._function(*own)
            return
        self.shared = self.shared or may_share(call)
        values = [*passed_values(call), *([call.func.value] if isinstance(call.func, ast.Attribute) else [])]
        for item in values:
            self.go(item, spot)

    def _function(self, file: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """What it returns, and the conditions around that."""
        if id(function) in self._seen:
            return
        self._seen.add(id(function))
        tree = self._files[file]
        self.shared = self.shared or any(may_share(item) for item in own_nodes(function) if isinstance(item, ast.Call))
        for item in own_nodes(function):
            if isinstance(item, ast.Return) and item.value is not None:
                at = Spot(file, tree, function, item.lineno)
                self.go(item.value, at)
                for branch, _ in deciding_ifs(tree, item.lineno):
                    self.go(branch.test, structs.replace(at, line=branch.lineno))

    def _name(self, node: ast.Name, spot: Spot, limit: ast.expr | None) -> None:
        """A variable that several lines bind is kept itself; any is also what it is made of."""
        bound = [*bindings_of(spot.scope, node.id)]
        if not bound or isinstance(spot.scope, ast.Lambda):
            return
        given = (item for item in own_nodes(spot.scope) if isinstance(item, ast.Call) and may_share(item))
        for part in (part for call in given for value in passed_values(call) for part in nodes_of(value)):
            self.shared = self.shared or (isinstance(part, ast.Name) and part.id == node.id)
        if len(bound) > 1:
            self.found.append(AskedState(node, spot, node.id, limit, spot.scope))
        for line, value, _ in bound:
            if isinstance(value, ast.expr):
                self.go(value, structs.replace(spot, line=line), limit)

    def _held(self, node: ast.Attribute | ast.Subscript, spot: Spot, limit: ast.expr | None) -> None:
        """An attribute that is a property is what that returns."""
        for file, tree in self._files.items():
            for item in _properties(tree, node.attr) if isinstance(node, ast.Attribute) else ():
                self._function(file, item)
                return
        key = key_of(node)
        if key is not None:
            self.found.append(AskedState(node, spot, key, limit))


def _properties(tree: ast.Module, name: str) -> Iterator[ast.FunctionDef]:
    for item in nodes_of(tree):
        if isinstance(item, ast.FunctionDef) and item.name == name and item.decorator_list:
            yield item
