"""A thread that fills a queue and that an exception ended: why, and how who takes from the queue may learn it."""

from __future__ import annotations

import ast

from pytracer._library_files import is_library_file
from pytracer._text import shortened
from pytracer.analyze.evidence.failing.explained import explained
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.passing import names_of_object
from pytracer.analyze.evidence.syntax.scopes import Scope, qualified_name, scope_of
from pytracer.analyze.evidence.syntax.tries import tries_around
from pytracer.analyze.evidence.waits.ended_threads import LOADED, EndedThread
from pytracer.analyze.evidence.waits.queue_marks import puts_into, taking
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import ExceptionReport, PythonFrame

_LONGEST = 40


def error_advice(view: ProcessView, thread: EndedThread) -> str:
    """What is wrong at the line that raised, as far as that needs no values: those of a thread are not recorded."""
    report = thread.report
    told = ExceptionReport(type=report.type, message=report.message)
    words = explained(view.process.snapshot, told, report.python_stack or ()).words
    if words is None:
        return thread.advice
    return f"{words}{f' {LOADED}' if thread.loads else ''}"


def telling_advice(view: ProcessView, wait: ProcessWait, thread: EndedThread) -> str | None:
    """Where to catch the exception, and to put it into the queue; None where the thread does not fill that."""
    at = wait.at if wait.kind == "queue" else None
    tree = syntax_tree(view.process.snapshot, at)
    taken = taking(tree, at.line) if tree is not None and at is not None and at.line is not None else None
    name = last_name(taken.queue) if taken is not None else None
    if tree is None or at is None or name is None:
        return None
    names = names_of_object(tree, name)
    for frame in thread.report.python_stack or ():
        told = _told_by(view, frame, names, at)
        if told is not None:
            return told
    return None


def _told_by(view: ProcessView, frame: PythonFrame, names: frozenset[str], at: PythonFrame) -> str | None:
    """By a function of the thread that puts into the queue, and that catches nothing around its line."""
    tree = syntax_tree(view.process.snapshot, frame) if not is_library_file(frame.file) else None
    if tree is None or frame.line is None:
        return None
    scope = scope_of(tree, frame.line)
    puts = [item.func for item in puts_into(tree, names) if scope_of(tree, item.lineno) is scope]
    if not puts or not isinstance(puts[0], ast.Attribute) or _is_caught(scope, frame.line):
        return None
    queue, around = shortened(ast.unparse(puts[0].value), _LONGEST), line_in(frame.file, frame.line, at.file)
    takes = line_in(at.file, at.line, at.file)
    return (
        f"Let {takes} know of such an end: put the exception into the queue in {qualified_name(tree, scope)} "
        f"(`except Exception as error: {queue}.put(error)`, around {around}), and raise it where it is taken."
    )


def _is_caught(scope: Scope, line: int) -> bool:
    """Whether a handler around the line may tell already."""
    return any(item.handlers or item.finalbody for item in tries_around(scope, line))
