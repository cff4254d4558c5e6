"""Tries of a loop that nothing limits: each of them fails, and the `except` goes on with the next one."""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.exceptions.handled import handled_at_end
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of, spans_body
from pytracer.analyze.evidence.syntax.swallowed import value_before
from pytracer.analyze.evidence.syntax.unbounded import EndlessLoop, Reason, body_of, catches_all_tries
from pytracer.analyze.evidence.waits.running_loops import loops_of, values_of
from pytracer.analyze.evidence.waits.waits import main_stack
from pytracer.analyze.naming import place_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_LONGEST = 60


def between_tries(view: ProcessView, frame: PythonFrame) -> tuple[EndlessLoop, Reason] | None:
    """Tries without a limit, where it slept in the `except` before the next one, whatever it had made in a try."""
    for loop in loops_of(view, frame):
        handler = catches_all_tries(loop, frame.line or 0)
        if handler is not None and spans_body(handler.body, frame.line or 0) and not came_through(view, frame, loop):
            return loop, msgspec.structs.replace(tries_reason(view, loop, handler), idle=True)
    return None


def came_through(view: ProcessView, frame: PythonFrame, loop: EndlessLoop) -> bool:
    """Whether a pass has come past a call of the `try`: what a line behind it counts has another value than before."""
    tree, value_of = syntax_tree(view.process.snapshot, frame), values_of(view, main_stack(view), frame)
    scope = scope_of(tree, frame.line or 0) if tree is not None else None
    for tried in (item for item in body_of(loop) if isinstance(item, ast.Try)):
        calls = [item.end_lineno or 0 for part in tried.body for item in nodes_of(part) if isinstance(item, ast.Call)]
        for item in (*tried.body, *tried.orelse):
            if tree is None or scope is None or not isinstance(item, ast.AugAssign):
                continue
            known, text = value_of(item.target), ast.unparse(item.target)
            before = value_before(tree, scope, loop, text)
            if known is not None and before is not None and known != before and min(calls, default=0) < item.lineno:
                return True
    return False


def tries_reason(view: ProcessView, loop: EndlessLoop, handler: ast.ExceptHandler) -> Reason:
    """What goes on with the next try, and what it had just caught, where that is recorded."""
    kind = f"except {shortened(ast.unparse(handler.type), _LONGEST)}" if handler.type is not None else "except"
    handled = handled_at_end(view)
    caught = f"; it had just caught {handled.words}" if handled is not None else ""
    at = f" at {place_words(handled.frame)}" if handled is not None and handled.frame is not None else ""
    see = (
        f"See why {handled.report.type} comes{at}"
        if handled is not None
        else (f"Print the exception in the `except` of line {handler.lineno}")
    )
    return Reason(
        f"the `{kind}` of line {handler.lineno} goes on with the next try each time, and nothing limits the "
        f"number of tries{caught}",
        f"{see}: an exception that comes again with each try never lets the loop end. Bound the tries (`for attempt in "
        "range(5):`), and raise the last exception after them.",
        sure=False,
        tries=True,
    )
