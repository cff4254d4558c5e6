"""What the parent of a forked child had run before the fork, by the program's source."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, class_around, class_named, function_named, scope_of
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_PERHAPS = (ast.BoolOp, ast.IfExp, ast.Lambda, ast.comprehension)  # what is inside may never run


def ran_before(view: ProcessView, stack: Sequence[PythonFrame], fork: int) -> PythonFrame | None:
    """A line that led to the fork past a call of a function that the child waits in: its parent ran it as well.

    Only of a statement that stands below no condition.
    """
    inner = {(frame.function or "").rpartition(".")[2] for frame in stack[:fork] if not is_library_file(frame.file)}
    for frame in stack[fork:]:
        tree = syntax_tree(view.process.snapshot, frame) if not is_library_file(frame.file) else None
        if tree is None or frame.line is None:
            continue
        scope = scope_of(tree, frame.line)
        body = [] if isinstance(scope, ast.Lambda) else scope.body
        lines = [
            item.lineno
            for statement in body
            if isinstance(statement, (ast.Assign, ast.Expr)) and statement.lineno < frame.line
            if not any(isinstance(item, _PERHAPS) for item in nodes_of(statement))
            for item in nodes_of(statement)
            if isinstance(item, ast.Call) and called_name(item) in inner and _is_of_program(tree, scope, item)
        ]
        if lines:
            return msgspec.structs.replace(frame, line=lines[-1])
    return None


def _is_of_program(tree: ast.Module, scope: Scope, call: ast.Call) -> bool:
    """A function by its name, or a method of `self` or of a variable that is made of the method's class there."""
    name = called_name(call) or ""
    if isinstance(call.func, ast.Name):
        return function_named(tree, name) is not None
    owner = variable(call.func.value) if isinstance(call.func, ast.Attribute) else None
    if owner is None:
        return False
    made = [value for _, value in lines_that_bind(scope, owner) if isinstance(value, ast.Call)]
    classes = [class_named(tree, called_name(value) or "") for value in made]
    classes += [class_around(tree, scope)] if owner == "self" else []
    return any(item is not None and _has(item, name) for item in classes)


def _has(owner: ast.ClassDef, name: str) -> bool:
    return any(isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.name == name for item in owner.body)
