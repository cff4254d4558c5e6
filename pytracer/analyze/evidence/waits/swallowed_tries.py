"""A loop whose passes all ended in its `except`: by the recorded values, no pass has come nearer to the end.

A counter that only lines behind the failing ones change has the value that it had before the loop; what the `except`
counts is how many passes ended in it.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.exceptions.handled import Handled, handled_at_end
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.error_counts import error_counts
from pytracer.analyze.evidence.syntax.outcomes import ValueOf
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans_body
from pytracer.analyze.evidence.syntax.swallowed import (
    Mover,
    NoNext,
    SwallowingLoop,
    call_without_next,
    caught_names,
    swallowing_loop,
    value_before,
)
from pytracer.analyze.evidence.syntax.unbounded import LONGEST, EndlessLoop, Reason, loops_at, short_text
from pytracer.analyze.known.exceptions import exception_advice
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_MANY = 32  # passes in a row that ended so
_NOT_YET = frozenset({"Empty", "Full", "BlockingIOError", "TimeoutError", "timeout", "ConnectionRefusedError"})
_MISTAKES = frozenset(
    {"AttributeError", "NameError", "TypeError", "UnboundLocalError", "ImportError", "NotImplementedError"}
)


class SwallowedTries(msgspec.Struct, frozen=True):
    """`still`: the variable that has the value it had before. `count`: what the `except` counts, and how far."""

    loop: EndlessLoop
    found: SwallowingLoop
    handler: ast.ExceptHandler
    still: Mover | None
    count: tuple[str, int] | None
    handled: Handled | None
    no_next: NoNext | None
    caught: bool
    """Whether it was at a line of the `except`: a pass has ended there."""

    @property
    def _many(self) -> bool:
        return self.count is not None and self.count[1] >= _MANY

    @property
    def is_shown(self) -> bool:
        """Whether passes are known to have ended so, and none otherwise; a first pass may only take long."""
        failed = self.caught or self.handled is not None or self.count is not None
        stays = self.still is not None and failed
        return stays or self.no_next is not None or (self._many and not self.found.movers and self.found.stays)

    @property
    def reason(self) -> Reason:
        """Why the loop went on."""
        counted = self._many and not _sleeps(self.handler)
        sure, proven = self.no_next is not None or counted, self.no_next is not None and self.still is not None
        return Reason(f"{self._passes}{self._still}{self._why}", self._advice, sure=sure, spins=proven, tries=True)

    @property
    def _kind(self) -> str:
        kind = self.handler.type
        return f"`except {shortened(ast.unparse(kind), LONGEST)}`" if kind is not None else "`except`"

    @property
    def _passes(self) -> str:
        goes_on = f"the {self._kind} of line {self.handler.lineno}, which goes on with the next one"
        if self.count is not None:
            return f"{self.count[1]:,} passes (`{self.count[0]}`) ended in {goes_on}"
        return f"its passes end in {goes_on}"

    @property
    def _still(self) -> str:
        if self.still is None:
            return ""
        node = self.still.node
        return (
            f": `{self.still.name}` is still {self.still.before}, as before the loop, so no pass has come to the end "
            f"of line {node.lineno} (`{short_text(node)}`)"
        )

    @property
    def _why(self) -> str:
        caught = f"; it had just caught {self.handled.words}" if self.handled is not None else ""
        if self.no_next is None:
            return caught
        if self.no_next.kind is None:
            return f"{caught}; in Python 3, iterators have no method next()"
        text = short_text(self.no_next.call)
        return (
            f"{caught}; `{text}` (line {self.no_next.call.lineno}) raises AttributeError each time: iterators of "
            f"Python 3 have no method next(), and it is {self.no_next.kind}, line {self.no_next.made.lineno}"
        )

    @property
    def _advice(self) -> str:
        if self.no_next is not None:
            func = self.no_next.call.func
            of = ast.unparse(func.value) if isinstance(func, ast.Attribute) else ""
            return (
                f"Call `next({of})` at line {self.no_next.call.lineno} instead of `{short_text(self.no_next.call)}`. "
                f"Let the {self._kind} of line {self.handler.lineno} name StopIteration alone, the end of an iterator: "
                f"an AttributeError is a mistake, which it hides.{self._first_pass(of)}"
            )
        bound = "Count the passes that fail, and raise the last exception after a few of them."
        if self.handled is None:
            return (
                f"Print the exception in the `except` of line {self.handler.lineno} (traceback.print_exc()), which is "
                f"raised at {_lines(self.found.raising)}: one that comes again with each pass never lets the loop end. "
                f"{bound}"
            )
        report, at = self.handled.report, self.handled.frame
        line = f"line {at.line}" if at is not None else "its line"
        known = exception_advice(report.type, report.message, line)
        see = known if known is not None else f"See why {report.type} comes at {line}."
        name = (report.type or "").rpartition(".")[2]
        hides = f" Let the `except` name only what another try can mend, not {name}." if name in _MISTAKES else ""
        return f"{see}{hides} {bound}"

    def _first_pass(self, of: str) -> str:
        """Of what is None before its first pass, for which next() raises TypeError."""
        none = self.no_next.none if self.no_next is not None else None
        return f" Begin with `{of} = iter(())` at line {none} in place of None." if none is not None else ""


def swallowed_tries(view: ProcessView, frame: PythonFrame, value_of: ValueOf) -> SwallowedTries | None:
    """Of a loop around a frame's line. None where a pass has come nearer to its end, or nothing shows that none has."""
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame.line is None:
        return None
    scope = scope_of(tree, frame.line)
    for loop in loops_at(scope, frame.line):
        found = swallowing_loop(tree, scope, loop)
        if found is None or any(_waits(item) for item in found.handlers):
            continue
        known = [(item, value_of(ast.Name(item.name, ast.Load()))) for item in found.movers]
        told = [(item, text) for item, text in known if item.before is not None and text is not None]
        if any(text != item.before for item, text in told):
            return None
        handled, handler = _handled(view, found, frame.file), found.handlers[0]
        counts = [
            (item.name, count)
            for one in found.handlers
            for item in error_counts(tree, one)
            if value_before(tree, scope, loop, item.name) == "0"
            and (count := _whole(value_of(ast.parse(item.name, mode="eval").body))) is not None
        ]
        there = [one for one in found.handlers if spans_body(one.body, frame.line)]
        handler = there[0] if there else handler
        result = SwallowedTries(
            loop,
            found,
            handler,
            told[0][0] if told and found.stays else None,
            counts[0] if counts and counts[0][1] else None,
            handled,
            _no_next(view, frame, tree, found, handled),
            bool(there),
        )
        if counts and not counts[0][1]:
            return None  # no pass has failed
        return result if result.is_shown else None
    return None


def _no_next(
    view: ProcessView, frame: PythonFrame, tree: ast.Module, found: SwallowingLoop, handled: Handled | None
) -> NoNext | None:
    """None where it has come past that call."""
    message = handled.report.message if handled is not None else None
    lacks = call_without_next(program_files(view.process.snapshot, [frame]), tree, found, message)
    line = frame.line or 0
    past = lacks is not None and spans_body(found.tried.body, line) and line > (lacks.call.end_lineno or 0)
    return lacks if not past else None


def _waits(handler: ast.ExceptHandler) -> bool:
    """Whether it takes what is raised until another thread, process or host has come so far."""
    return any(item in _NOT_YET for item in caught_names(handler))


def _sleeps(handler: ast.ExceptHandler) -> bool:
    """Whether it waits before the next try: what another process or host is still at work for may come."""
    return any(isinstance(item, ast.Call) and called_name(item) == "sleep" for item in own_nodes(handler))


def _handled(view: ProcessView, found: SwallowingLoop, file: str | None) -> Handled | None:
    """What a handler of the `try` had caught."""
    handled = handled_at_end(view)
    stack = handled.report.python_stack or () if handled is not None else ()
    lines = [item.line or 0 for item in stack if item.file == file]
    return handled if any(spans_body(found.tried.body, line) for line in lines) else None


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _lines(calls: Sequence[ast.Call]) -> str:
    lines = sorted({item.lineno for item in calls})
    return f"line {lines[0]}" if len(lines) == 1 else f"one of lines {lines[0]} to {lines[-1]}"
