"""An exception of a handler: whether the program would have raised the first one again, so that this ended the run."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer._library_files import is_library_file
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import HandledExceptionReport, PythonFrame


def ended_by_first(snapshot: Snapshot, stack: Sequence[PythonFrame], first: HandledExceptionReport) -> bool:
    """Whether a `finally`, an `except` that ends with `raise`, or the end of a `with` failed on its way."""
    lines = {(frame.file, frame.line) for frame in first.python_stack or ()}
    for frame in stack:
        if is_library_file(frame.file) or frame.line is None:
            continue
        tree = syntax_tree(snapshot, frame)
        for item in ast.walk(tree) if tree is not None else ():
            tried = _left_by(item, frame.line)
            if any(file == frame.file and line is not None and _within(tried, line) for file, line in lines):
                return True
    return False


def _left_by(item: ast.AST, line: int) -> Sequence[ast.stmt]:
    """What an exception leaves by way of that line, and goes on; of a `with`, `__exit__` is called at its head."""
    if isinstance(item, (ast.With, ast.AsyncWith)):
        return item.body if item.lineno <= line < item.body[0].lineno else ()
    return [*item.body, *item.orelse] if isinstance(item, ast.Try) and _passes_on(item, line) else ()


def _passes_on(item: ast.Try, line: int) -> bool:
    """Whether the line is in a part of it behind which the exception goes on."""
    if _within(item.finalbody, line):
        return not any(isinstance(part, ast.Return) for node in item.finalbody for part in ast.walk(node))
    for handler in item.handlers:
        last = handler.body[-1]
        if _within(handler.body, line):
            return isinstance(last, ast.Raise) and last.lineno != line and not _forgets(last)
    return False


def _forgets(node: ast.Raise) -> bool:
    """`raise Other() from None`."""
    return isinstance(node.cause, ast.Constant) and node.cause.value is None


def _within(nodes: Sequence[ast.stmt], line: int) -> bool:
    return any(node.lineno <= line <= (node.end_lineno or node.lineno) for node in nodes)
