"""Another call of the function in which a rank is, above it and below a condition, in the same round.

`metrics["iou"] = self.iou.compute()` below `if self.iou.count > 0:`, and `self.recall.compute()` beside it: whoever
called compute() once less left out that one.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.slicing.callers import calls_of, only_function
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.loops import deciding_ifs
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, scope_of, spans
from pytracer.analyze.naming import line_in
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_LONGEST = 60
_COUNTERS = ("range", "enumerate", "trange", "count")
# What options are usually kept in: the same for all ranks of a job.
_OPTIONS = frozenset({"args", "cfg", "config", "opt", "opts", "options", "hparams", "params", "conf", "settings"})
_OF_ROUNDS = frozenset({"epoch", "step", "epochs", "steps", "iteration", "it", "global_step"})


class GuardedCall(msgspec.Struct, frozen=True):
    """`call`: the line that calls `function`; `test` at `at`: the condition around that. Lines as in a sentence."""

    function: str
    call: str
    at: str
    test: str

    def subject(self, behind: str) -> str:
        """For the headline. `behind`: the rank that called it less often."""
        return (
            f"{behind} has called {self.function}() less often, which {self.call} calls only where `{self.test}` holds "
            f"({self.at})"
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

    Args:
        view: A rank that is in the function.
        way: The program's lines that led there, the outermost first.
        here: The file that is spoken of.
    """
    files = program_files(view.process.snapshot, way)
    for outer, inner in zip(reversed(way[:-1]), reversed(way[1:]), strict=True):
        found = only_function(files, (inner.function or "").rpartition(".")[2])
        tree = files.get(outer.file or "")
        if found is None or tree is None or outer.line is None or found[0] != inner.file:
            continue
        scope = scope_of(tree, outer.line)
        guards = {
            guard.lineno: (guard, item.call)
            for item in calls_of(files, *found)
            if item.tree is tree and item.call.lineno < outer.line and scope_of(tree, item.call.lineno) is scope
            for guard, is_around in deciding_ifs(tree, item.call.lineno)[:1]
            if is_around and not spans(guard, outer.line) and not _is_alike(scope, guard)
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


def _is_alike(scope: Scope, guard: ast.If) -> bool:
    """Whether it asks only for numbers of rounds, options and constants."""
    counters = {
        name.id
        for loop in own_nodes(scope)
        if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call)
        if any(ast.unparse(loop.iter.func).rpartition(".")[2] == item for item in _COUNTERS)
        for name in nodes_of(loop.target)
        if isinstance(name, ast.Name)
    }
    asked = {text for item in nodes_of(guard.test) if (text := variable(item)) is not None}
    whole = {text for text in asked if not any(other.startswith(f"{text}.") for other in asked)}
    return all(_is_of_job(text, counters) for text in whole)


def _is_of_job(text: str, counters: set[str]) -> bool:
    parts = text.removeprefix("self.").split(".")
    return parts[0] in counters or parts[0] in _OPTIONS or parts[-1] in _OF_ROUNDS
