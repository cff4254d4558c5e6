"""What the parent of a forked child had run before the fork, by the program's source."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import function_named, scope_of
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
            if isinstance(item, ast.Call) and (name := called_name(item) or "") in inner
            if function_named(tree, name) is not None
        ]
        if lines:
            return msgspec.structs.replace(frame, line=lines[-1])
    return None
