"""A check of the program's that a worker still runs, or has asked all to stop: the worker's own exception is why.

A worker that catches its exception, prints it, sets an event and leaves ends with status 0: nobody else learns why. The
exception is recorded where the worker printed it. Elsewhere the source shows which `except` sets what the check asks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._text import shortened
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.exceptions.unfinished_files import unfinished_file
from pytracer.analyze.evidence.failing.explained import Explanation, explained
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.failing.usage.liveness import asks_for_worker
from pytracer.analyze.evidence.phrases import error_at_words, error_words
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import LOOPS, deciding_ifs
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans, spans_body
from pytracer.analyze.evidence.syntax.tries import tries_around
from pytracer.analyze.kin import children_of
from pytracer.analyze.known.exceptions import exception_advice
from pytracer.analyze.naming import name_words
from pytracer.analyze.parts import exception_report, innermost_of_program
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.blackbox.schema import ON_PRINT
from pytracer.decode.types.journal import UncaughtException
from pytracer.report.job import Evidence, ExceptionReport, PythonFrame

_LONGEST = 60
_LEAVE = (ast.Return, ast.Raise, ast.Break)


class _Printed(msgspec.Struct, frozen=True):
    """An exception that a worker caught and printed."""

    view: ProcessView
    report: ExceptionReport
    at: PythonFrame
    mono_ns: int

    @property
    def who(self) -> str:
        return name_words([self.view])


def failed_worker(job: JobView, view: ProcessView) -> Explanation | None:
    """Of a `raise` or `assert` of the program's own, where a worker failed before that and went on to its end."""
    at = failing_line(view.process.snapshot, view.exception, view.exception_stack)
    test = _check(at) if at is not None else None
    if at is None or test is None or not asks_for_worker(test):
        return None
    if any(_was_killed(item, view) for item in children_of(job, view)):
        return None
    first = min(_printed(job, view, _events(test)), key=lambda item: item.mono_ns, default=None)
    if first is not None:
        return _of_printed(job, view, at, test, first)
    return _of_source(at, test)


def _check(at: FailingLine) -> ast.expr | None:
    """The condition of an assert, or of the closest `if` around a raise."""
    if not at.own or not isinstance(at.statement, (ast.Raise, ast.Assert)):
        return None
    if isinstance(at.statement, ast.Assert):
        return at.statement.test
    return next((item.test for item, around in deciding_ifs(at.tree, at.line) if around), None)


def _was_killed(child: ProcessView, view: ProcessView) -> bool:
    """Whether a signal ended it before that this process did not send itself: then that is why it is not alive."""
    if any(sent.sender.snapshot is view.process.snapshot for sent in child.senders):
        return False
    raised, ended = view.process.exception_mono_ns, child.process.ended_mono_ns
    return child.process.status_kind == "signaled" and None not in (raised, ended) and (ended or 0) < (raised or 0)


def _printed(job: JobView, view: ProcessView, events: Sequence[str]) -> Iterator[_Printed]:
    until = view.process.exception_mono_ns or 0
    for item in children_of(job, view):
        snapshot = item.process.snapshot
        for fact in snapshot.recorded(UncaughtException):
            if fact.data.on_its_way != ON_PRINT or not snapshot.created_mono_ns <= fact.mono_ns <= until:
                continue
            report = exception_report(fact.data)
            stack = report.python_stack or []
            at = innermost_of_program(stack)
            if at is not None and _ends_worker(item, stack, events):
                yield _Printed(item, report, at, fact.mono_ns)


def _ends_worker(view: ProcessView, stack: Sequence[PythonFrame], events: Sequence[str]) -> bool:
    """Whether what caught it leaves the loop that it is in, or sets what the check asks: else the worker goes on."""
    caught = stack[-1] if stack else None
    tree = syntax_tree(view.process.snapshot, caught) if caught is not None else None
    if caught is None or tree is None or caught.line is None:
        return False
    scope = scope_of(tree, caught.line)
    found = next((item for item in tries_around(scope, caught.line) if item.handlers), None)
    if found is None:
        return False
    around = any(isinstance(item, LOOPS) and spans_body(item.body, found.lineno) for item in own_nodes(scope))
    nodes = [part for handler in found.handlers for part in nodes_of(handler)]
    leaves = any(isinstance(part, _LEAVE) for part in nodes)
    return leaves or not around or any(_sets(part, events) for part in nodes)


def _events(test: ast.expr) -> list[str]:
    """Names of the events that a check asks: `abort` of `self.abort.is_set()`."""
    calls = (item for item in nodes_of(test) if isinstance(item, ast.Call) and called_name(item) == "is_set")
    owners = (item.func.value for item in calls if isinstance(item.func, ast.Attribute))
    return [name for item in owners if (name := last_name(item)) is not None]


def _sets(node: ast.AST, events: Sequence[str]) -> bool:
    if not isinstance(node, ast.Call) or called_name(node) != "set" or not isinstance(node.func, ast.Attribute):
        return False
    return last_name(node.func.value) in events


def _of_printed(job: JobView, view: ProcessView, at: FailingLine, test: ast.expr, first: _Printed) -> Explanation:
    snapshot, stack = first.view.process.snapshot, first.report.python_stack or []
    known = _inner(job, view, first)
    about = f" ({known.subject})" if known.subject is not None else ""
    advice = known.words or exception_advice(first.report.type, first.report.message, f"line {first.at.line}")
    return Explanation(
        f"Begin with that exception of {first.who}, {error_at_words(first.report)}: {_only_tells(at, test)}."
        f"{f' {advice}' if advice is not None else ''} Let the worker send its exception, such as through a queue, and "
        f"raise line {at.line}'s `from` it.",
        f"{first.who} had failed before with {error_at_words(first.report)}, which it caught and printed{about}",
        behind=known.behind or Behind.of([], first.at),
        line=first.at,
        evidence=Evidence(
            "exception",
            f"{first.who} had caught and printed {error_words(first.report)}",
            pid=snapshot.pid,
            rank=first.view.process.rank,
            exception=first.report.type,
            text=first.report.message,
            python=first.at if stack else None,
        ),
    )


def _inner(job: JobView, view: ProcessView, first: _Printed) -> Explanation:
    """What is known of the worker's own exception."""
    snapshot, stack = first.view.process.snapshot, first.report.python_stack or []
    unfinished = unfinished_file(job, view, snapshot, first.report, stack)
    if unfinished is not None:
        return Explanation(unfinished.advice, unfinished.subject, together=True, behind=unfinished.behind)
    return explained(snapshot, first.report, stack)


def _only_tells(at: FailingLine, test: ast.expr) -> str:
    return f"the check of {at.here(test.lineno)} only tells that a worker has ended or asked to stop"


def _of_source(at: FailingLine, test: ast.expr) -> Explanation:
    """Without a recorded exception: which `except` sets the event, and where a worker's own words are."""
    handler, text = _handler(at, _events(test)), shortened(ast.unparse(test), _LONGEST)
    if handler is None:
        return Explanation(
            f"`{text}` (line {test.lineno}) only tells that a worker has ended or asked to stop: begin with the first "
            "traceback or last words of a worker in the output, above this one, and with the workers' exit status "
            "(`exitcode`)."
        )
    found, sets = handler
    return Explanation(
        f"`{text}` (line {test.lineno}) only tells that a worker has ended or asked to stop: the `except` of line "
        f"{found.lineno} catches its exception and sets that (line {sets.lineno}). Begin with that exception, in the "
        "output above this one: print it there by traceback.print_exc(), or send it to the main process and raise it."
    )


def _handler(at: FailingLine, events: Sequence[str]) -> tuple[ast.ExceptHandler, ast.Call] | None:
    """The only `except` of the file that sets one of these."""
    found = [
        (item, part)
        for item in nodes_of(at.tree)
        if isinstance(item, ast.ExceptHandler)
        for part in nodes_of(item)
        if isinstance(part, ast.Call) and _sets(part, events)
    ]
    return found[0] if len(found) == 1 and not spans(found[0][1], at.line) else None
