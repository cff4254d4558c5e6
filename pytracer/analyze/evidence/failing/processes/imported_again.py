"""A line that starts processes when its file is imported: a child of spawn or forkserver imports it, too."""

from __future__ import annotations

import ast

from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import is_main_part, statement_at
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.report.job import PythonFrame

_STARTED_IN_CHILD = "current process has finished its bootstrapping phase"  # CPython, multiprocessing/spawn.py
_MODULE = "<module>"
_GUARD = '`if __name__ == "__main__":`'


def imported_again(at: FailingLine) -> str | None:
    """Which line of which file to move: of the script outside of its guard, or of a module that it imports."""
    modules = _modules(at)
    if not modules:
        return None
    inner, script = modules[0], modules[-1]
    what = f"{capital(at.in_file(inner.file, inner.line))}{_text(at, inner)}"
    if inner.file != script.file:
        by = at.in_file(modules[1].file, modules[1].line)
        return (
            f"{what} runs whenever that file is imported ({by}), and a child of spawn or forkserver imports what the "
            f"script imports: put it into a function, and call that where the script does its work, below {_GUARD}."
        )
    guard = _guard(at, script)
    if guard is not None:
        return (
            f"{what} is outside of {_GUARD} ({at.in_file(script.file, guard.lineno)}), so that a child of spawn or "
            "forkserver runs it again: move it below that, with all that starts processes or trains."
        )
    return f"{what} starts processes on import: put what the script does into a function and call it below {_GUARD}."


def imported_again_subject(at: FailingLine) -> str | None:
    """For the headline."""
    modules = _modules(at)
    if not modules:
        return None
    inner, script = modules[0], modules[-1]
    again = "a child of spawn or forkserver ran the main script again"
    if inner.file != script.file:
        return f"{again}, which imports {(inner.file or '').rpartition('/')[2]}, and that starts processes on import"
    outside = f", outside of {_GUARD}" if _guard(at, script) is not None else ""
    return f"{again}, which starts processes on import{outside}"


def _modules(at: FailingLine) -> list[PythonFrame]:
    """The program's frames of imports, innermost first, in a child that a guard would not have led there."""
    if at.kind != "RuntimeError" or _STARTED_IN_CHILD not in at.message:
        return []
    return [frame for frame in at.frames if frame.function == _MODULE]


def _text(at: FailingLine, frame: PythonFrame) -> str:
    tree = _tree(at, frame)
    found = statement_at(tree, frame.line or 0) if tree is not None else None
    return f" (`{short(source(found))}`)" if isinstance(found, (ast.Expr, ast.Assign, ast.AnnAssign)) else ""


def _guard(at: FailingLine, script: PythonFrame) -> ast.If | None:
    tree = _tree(at, script)
    return next((item for item in nodes_of(tree) if is_main_part(item)), None) if tree is not None else None


def _tree(at: FailingLine, frame: PythonFrame) -> ast.Module | None:
    return at.tree if frame.file == at.frame.file else syntax_tree(at.snapshot, frame)
