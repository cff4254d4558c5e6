"""Results of a pool that come by a callback alone, which nothing calls for a task that failed: `callback=store`."""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import list_words
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.changes import names_read, touched
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.scopes import function_named, own_nodes, scope_of
from pytracer.analyze.evidence.waits.unasked_tasks import given_tasks, is_unasked
from pytracer.analyze.evidence.waits.wait_chain import awaits_task
from pytracer.analyze.kin import children_of
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import PythonFrame


class UncalledBack(msgspec.Struct, frozen=True):
    """`line`: that gives the tasks. `fills`: what the callback changes, and the loop reads. `sure`: no task is left."""

    line: int
    method: str
    callback: str
    fills: str
    sure: bool
    of_all: bool = True

    @property
    def sentence(self) -> str:
        """For the headline."""
        left = ". All workers of the pool waited for a next task: none is left that may still call it"
        return (
            f"Only {self.callback}() changes `{self.fills}`, the callback of line {self.line}: {self.method}() does "
            f"not call it for a task that fails, and nobody asks for such an error{left if self.sure else ''}"
        )

    @property
    def advice(self) -> str:
        """How the error is to be seen."""
        return (
            f"Pass error_callback=print to {self.method}() in line {self.line}, or keep what it returns and call its "
            f"get(), which raises the error of the task. Let the loop count failed tasks, too. {self._else}"
        )

    @property
    def _else(self) -> str:
        if self.sure:
            return "If none has failed, compare how many tasks are given with how many results the loop waits for."
        return "If the workers are only slow, raise the time limit."


def uncalled_back(job: JobView, view: ProcessView, test: ast.expr, at: PythonFrame) -> UncalledBack | None:
    """Of a loop that asks for what such a callback fills."""
    tree = syntax_tree(view.process.snapshot, at)
    if tree is None or at.line is None:
        return None
    read = {name.rpartition(".")[2]: name for name in names_read(test)}
    children = [item for item in children_of(job, view) if item.python_frame is not None]
    for call, _ in given_tasks(tree, scope_of(tree, at.line)):
        given = keyword_value(call, "callback")
        function = function_named(tree, last_name(given) or "") if given is not None else None
        if function is None or call.lineno > at.line or not is_unasked(scope_of(tree, at.line), call, at.line):
            continue
        fills = {name.rpartition(".")[2] for name in touched(own_nodes(function))} & {*read}
        if fills:
            idle = bool(children) and all(awaits_task(item) for item in children)
            words = list_words(sorted(read[name] for name in fills))
            return UncalledBack(call.lineno, called_name(call) or "", function.name, words, idle)
    return None
