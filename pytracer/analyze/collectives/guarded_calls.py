"""Another call of the function in which a rank is, above it and below a condition, in the same round.

`metrics["iou"] = self.iou.compute()` below `if self.iou.count > 0:`, and `self.recall.compute()` beside it: whoever
called compute() once less left out that one.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from pytracer._text import shortened
from pytracer.analyze.collectives.alike_tests import is_alike
from pytracer.analyze.collectives.deciders import decides_itself
from pytracer.analyze.collectives.quiet_handlers import goes_on
from pytracer.analyze.evidence.slicing.callers import calls_of, only_function
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.scopes import scope_of, spans, spans_body
from pytracer.analyze.evidence.syntax.tries import tries_around
from pytracer.analyze.naming import line_in
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_LONGEST = 60


class GuardedCall(msgspec.Struct, frozen=True):
    """`call`: the line that calls `function`; `test` at `at`: the condition around that. Lines as in a sentence."""

    function: str
    call: str
    at: str
    test: str

    def subject(self, behind: str) -> str:
        """For the headline. `behind`: the rank that called it less often."""
        return (
            f"{behind} has called {self.function}() less often; {self.call}, which calls it only where `{self.test}` "
            f"holds ({self.at}), may have left it out"
        )

    def advice(self, behind: str, counted: str) -> str:
        """What to change."""
        return (
            f"{counted}: see whether {self.at} (`if {self.test}:`) came out differently on {behind}, whose own data or "
            f"state it asks. Call {self.function}() on all ranks, with a neutral value where there is none, or let all "
            "ranks decide alike: all_reduce() what the condition asks."
        )


def guarded_call(view: ProcessView, way: Sequence[PythonFrame], here: str | None) -> GuardedCall | None:
    """None where the function has no such call, or several, or where the condition is the same on all ranks.

    Nor where the lines that led there may have been left out themselves: a handler goes on without the rest, or the
    call stands below a condition, too.

    Args:
        view: A rank that is in the function.
        way: The program's lines that led there, the outermost first.
        here: The file that is spoken of.
    """
    files = program_files(view.process.snapshot, way)
    if any(_may_be_skipped(files.get(outer.file or ""), outer, inner) for outer, inner in pairwise(way)):
        return None
    for outer, inner in zip(reversed(way[:-1]), reversed(way[1:]), strict=True):
        found = only_function(files, (inner.function or "").rpartition(".")[2])
        tree = files.get(outer.file or "")
        if found is None or tree is None or outer.line is None or found[0] != inner.file:
            continue
        scope = scope_of(tree, outer.line)
        if any(is_around and not is_alike(tree, guard) for guard, is_around in deciding_ifs(tree, outer.line)):
            continue
        guards = {
            guard.lineno: (guard, item.call)
            for item in calls_of(files, *found)
            if item.tree is tree and item.call.lineno < outer.line and scope_of(tree, item.call.lineno) is scope
            for guard, is_around in deciding_ifs(tree, item.call.lineno)[:1]
            if is_around and spans_body(guard.body, item.call.lineno) and not spans(guard, outer.line)
            if not is_alike(tree, guard)
        }
        if len(guards) == 1:
            guard, call = guards.popitem()[1]
            return GuardedCall(
                found[1].name,
                line_in(outer.file, call.lineno, here),
                line_in(outer.file, guard.lineno, here),
                shortened(ast.unparse(guard.test), _LONGEST),
            )
    return None


def _may_be_skipped(tree: ast.Module | None, outer: PythonFrame, inner: PythonFrame) -> bool:
    """Whether an error before the call, or what stands around it in its line, may have left it out."""
    if tree is None or outer.line is None:
        return False
    if decides_itself(tree, outer.line, (inner.function or "").rpartition(".")[2]):
        return True
    handlers = (part for item in tries_around(scope_of(tree, outer.line), outer.line) for part in item.handlers)
    return any(goes_on(part) and not _is_for_the_end(part) for part in handlers)


def _is_for_the_end(handler: ast.ExceptHandler) -> bool:
    """Whether it is for a process that is asked to end, as all ranks are."""
    return handler.type is not None and ast.unparse(handler.type) in ("KeyboardInterrupt", "SystemExit")
