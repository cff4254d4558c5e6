"""All that an expression is made of, by the source: variables, attributes, and whether a model's output is among it.

Followed over assignments, what fills a list, and functions of the program. It errs on the side of more: a function that
is called counts with all that it reads.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.slicing.keepers import Files
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.imports import imported_as
from pytracer.analyze.evidence.syntax.names import bare_names
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes

_LOSS = Pattern("loss|crit|metric|objective", re.IGNORECASE)
_FILLS = ("append", "extend", "add", "update")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MOST = 200


@dataclass
class Reads:
    """What was met. `models`: last names of what holds a module; `outputs`: whether one of them was called."""

    files: Files
    models: Collection[str]
    attributes: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    outputs: bool = False
    _seen: set[int] = field(default_factory=set)

    def follow(self, tree: ast.Module, scope: Scope, node: ast.AST, line: int) -> None:
        """Add what an expression of a line reads."""
        waiting: list[ast.AST] = [node]
        while waiting and len(self._seen) < _MOST:
            for item in nodes_of(waiting.pop()):
                if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Load):
                    self.attributes.add(item.attr)
                elif isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load):
                    waiting += self._name(scope, item.id, line)
                elif isinstance(item, ast.Call):
                    self._call(tree, item)

    def _name(self, scope: Scope, name: str, line: int) -> list[ast.AST]:
        """What a variable was set to, above the line or in a loop around it, and what a list was filled with."""
        self.names.add(name)
        found: list[ast.AST] = [value for at, value in lines_that_bind(scope, name) if value is not None and at <= line]
        for node in own_nodes(scope):
            if isinstance(node, (ast.For, ast.AsyncFor)) and name in bare_names(node.target):
                found.append(node.iter)
            elif isinstance(node, ast.Call) and called_name(node) in _FILLS and isinstance(node.func, ast.Attribute):
                if name in bare_names(node.func.value):
                    found += node.args
            elif isinstance(node, ast.Assign) and any(
                isinstance(item, ast.Subscript) and name in bare_names(item.value) for item in node.targets
            ):
                found.append(node.value)
        new = [item for item in found if id(item) not in self._seen]
        self._seen |= {id(item) for item in new}
        return new

    def _call(self, tree: ast.Module, call: ast.Call) -> None:
        if is_output(self.files, self.models, tree, call):
            self.outputs = True
        for other, function in self._functions.get(called_name(call) or "", ()):
            if id(function) not in self._seen and len(self._seen) < _MOST:
                self._seen.add(id(function))
                for statement in function.body:
                    self.follow(other, function, statement, function.end_lineno or 0)

    @cached_property
    def _functions(self) -> dict[str, list[tuple[ast.Module, ast.FunctionDef | ast.AsyncFunctionDef]]]:
        """By name, in all files."""
        found: dict[str, list[tuple[ast.Module, ast.FunctionDef | ast.AsyncFunctionDef]]] = {}
        for tree in self.files.values():
            for item in nodes_of(tree):
                if isinstance(item, _FUNCTIONS):
                    found.setdefault(item.name, []).append((tree, item))
        return found


def is_output(files: Files, models: Collection[str], tree: ast.Module, call: ast.Call) -> bool:
    """Whether a call is that of a module: of a name in `models`, or of an object of which nothing is known.

    A name with a capital letter is a class.
    """
    name, function = called_name(call), call.func
    if name in models or name == "forward":
        return True
    own = isinstance(function, ast.Name) or (
        isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "self"
    )
    if name is None:
        return True  # `layers[0](x)`
    if (
        not own
        or name[:1].isupper()
        or hasattr(builtins, name)
        or imported_as(tree, function) is not None
        or _LOSS.search(name)
    ):
        return False
    kinds = (*_FUNCTIONS, ast.ClassDef)
    return not any(isinstance(item, kinds) and item.name == name for one in files.values() for item in nodes_of(one))
