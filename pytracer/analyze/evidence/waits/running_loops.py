"""The unbounded loops of a frame that ran when its process was ended, and what its variables were."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer.analyze.evidence.syntax.outcomes import ValueOf
from pytracer.analyze.evidence.syntax.scopes import Scope, scope_of
from pytracer.analyze.evidence.syntax.unbounded import EndlessLoop, loops_at
from pytracer.analyze.evidence.waits.quiet import is_idle
from pytracer.analyze.evidence.waits.waits import end_of
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame


def idle_loop(view: ProcessView, frame: PythonFrame) -> tuple[Scope, EndlessLoop] | None:
    """The innermost one, with its function, where the process is not known to have done a step for long."""
    tree, end = syntax_tree(view.process.snapshot, frame), end_of(view)
    if tree is None or frame.line is None or end is None or not is_idle(view, end.mono_ns):
        return None
    scope = scope_of(tree, frame.line)
    loop = next(iter(loops_at(scope, frame.line)), None)
    return (scope, loop) if loop is not None else None


def loops_of(view: ProcessView, frame: PythonFrame) -> list[EndlessLoop]:
    """The unbounded loops that have the running line of a frame, the innermost first."""
    tree = syntax_tree(view.process.snapshot, frame)
    return loops_at(scope_of(tree, frame.line), frame.line) if tree is not None and frame.line is not None else []


def values_of(view: ProcessView, stack: Sequence[PythonFrame], frame: PythonFrame) -> ValueOf:
    """Those of a frame that were recorded with its stack."""
    end = end_of(view) if not view.raised else None
    depth = next((place for place, item in enumerate(stack) if item is frame), -1)
    known = {item.expression: item.text for item in end.values if item.depth == depth} if end is not None else {}
    return lambda node: known.get(ast.unparse(node))
