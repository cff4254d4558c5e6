"""A method of the program that gives a native object back, and that runs twice: by close() and again by `__del__`.

The object's address is in an attribute. Where no line of the class sets that attribute anew behind the call, each
further call gives the same address back.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import list_words
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, scope_of, spans
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_MOST_CALLS = 3
_METHODS = (ast.FunctionDef, ast.AsyncFunctionDef)


class FreedTwice(msgspec.Struct, frozen=True):
    """`line` frees `attribute` in `method`; `calls`: the lines that call that method, each with its function."""

    attribute: str
    method: str
    line: int
    calls: tuple[tuple[int, str], ...]

    @property
    def advice(self) -> str:
        """What to change."""
        places = list_words([f"line {line}{f' ({name})' if name else ''}" for line, name in self.calls], _MOST_CALLS)
        return (
            f"Set `{self.attribute} = None` behind line {self.line}, and return from {self.method}() where it is None: "
            f"{self.method}() is called at {places}, and each call frees the same object again."
        )


def freed_twice(view: ProcessView) -> FreedTwice | None:
    """None where the crashed line frees no attribute of its object, where that is set anew, or where one line calls."""
    running = running_method(view)
    if running is None:
        return None
    tree, owner, method, line = running.tree, running.owner, running.method, running.line
    names = {
        name
        for node in running.calls
        for item in node.args
        if (name := variable(item)) is not None and name.startswith("self.")
    }
    if len(names) != 1:
        return None
    attribute = next(iter(names))
    if any(sets_attribute(node, attribute) for item in owner.body if _is_later(item) for node in nodes_of(item)):
        return None
    calls = sorted({(node.lineno, _function(tree, node.lineno)) for node in _calls(tree, owner, method.name)})
    enough = len(calls) > 1 or method.name == "__del__"
    return FreedTwice(attribute, method.name, line, tuple(calls)) if enough and calls else None


class RunningMethod(msgspec.Struct, frozen=True):
    """The method of the program's class `owner` that crashed at `line`, and its calls that the line is part of."""

    tree: ast.Module
    owner: ast.ClassDef
    method: ast.FunctionDef | ast.AsyncFunctionDef
    file: str | None
    line: int
    calls: tuple[ast.Call, ...]


def running_method(view: ProcessView) -> RunningMethod | None:
    """None where the program's innermost line is in no method."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame is None or frame.line is None:
        return None
    method = scope_of(tree, frame.line)
    owner = class_around(tree, method)
    if owner is None or not isinstance(method, _METHODS):
        return None
    calls = (item for item in own_nodes(method) if isinstance(item, ast.Call) and spans(item, frame.line))
    return RunningMethod(tree, owner, method, frame.file, frame.line, tuple(calls))


def _is_later(item: ast.stmt) -> bool:
    return isinstance(item, _METHODS) and item.name != "__init__"


def sets_attribute(node: ast.AST, attribute: str) -> bool:
    """Whether a statement sets it anew, or deletes it."""
    if isinstance(node, ast.Delete):
        return any(variable(item) == attribute for item in node.targets)
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(variable(part) == attribute for item in targets if item is not None for part in nodes_of(item))


def _calls(tree: ast.Module, owner: ast.ClassDef, method: str) -> list[ast.Call]:
    """`self.close()` in the class, and `x.close()` where `x` is a variable that holds an object of it."""
    inside = {id(node) for node in nodes_of(owner)}
    held = {name for node in nodes_of(tree) for name in _made_of(node, owner.name)}
    return [
        node
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called_name(node) == method
        if variable(node.func.value) in held or (id(node) in inside and ast.unparse(node.func.value) == "self")
    ]


def _made_of(node: ast.AST, owner: str) -> list[str | None]:
    """`meter` of `meter = Meter(10)` and `with Meter(10) as meter`."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and called_name(node.value) == owner:
        return [variable(item) for item in node.targets]
    if isinstance(node, ast.withitem) and isinstance(node.context_expr, ast.Call) and node.optional_vars is not None:
        return [variable(node.optional_vars)] if called_name(node.context_expr) == owner else []
    return []


def _function(tree: ast.Module, line: int) -> str:
    return getattr(scope_of(tree, line), "name", "")
