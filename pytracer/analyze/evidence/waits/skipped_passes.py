"""A loop without end whose every item is skipped: what it yields, and what ends it, is behind one test of an item.

`while True: for batch in loader: if batch.length > limit: continue; yield batch` goes round for ever where none passes.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of, spans
from pytracer.analyze.evidence.syntax.unbounded import (
    EndlessLoop,
    Reason,
    given_by,
    is_unbounded,
    leaves,
    loops_at,
    short_text,
)
from pytracer.analyze.evidence.waits.quiet import LONG_NS, work_times
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame


class SkippedPass(msgspec.Struct, frozen=True):
    """The loop, and the test that an item has to pass."""

    loop: EndlessLoop
    reason: Reason


def skipped_pass(view: ProcessView, frame: PythonFrame, until_ns: int) -> SkippedPass | None:
    """None where the process had done a step or a backward pass not long before, or an item has two ways."""
    snapshot = view.process.snapshot
    works = work_times(snapshot, until_ns)
    if until_ns - max(works, default=snapshot.created_mono_ns) < LONG_NS:
        return None
    tree = syntax_tree(snapshot, frame)
    if tree is None or frame.line is None:
        return None
    for loop in loops_at(scope_of(tree, frame.line), frame.line):
        inner = [item for item in loop.body if isinstance(item, ast.For)]
        if not is_unbounded(loop) or len(inner) != 1 or not spans(inner[0], frame.line):
            continue
        found = _only_test(loop, inner[0])
        if found is None:
            continue
        test, passes = found
        # What lies behind the test runs for an item that passed.
        if _counts_up(inner[0], test) or frame.line > (test.end_lineno or test.lineno):
            continue
        items = short_text(inner[0].iter)
        return SkippedPass(
            loop,
            Reason(
                f"it yields only where `{short_text(test)}` (line {test.lineno}) is {'true' if passes else 'false'}, "
                f"and where no item of `{items}` is so, it goes round for ever",
                f"Count how many items of `{items}` one pass of line {inner[0].lineno} skips by "
                f"`{short_text(test)}`, and raise behind that loop where all were.",
                idle=bool(works),
            ),
        )
    return None


def _only_test(loop: EndlessLoop, inner: ast.For) -> tuple[ast.expr, bool] | None:
    """What decides about each item, and whether it must hold; None where another way leads to a `yield`, or out."""
    gives = {id(item) for item in (*given_by(loop), *leaves(loop))}
    if not gives or not gives <= {id(item) for item in nodes_of(inner)} or inner.orelse:
        return None
    at = next((n for n, part in enumerate(inner.body) if gives & {id(item) for item in nodes_of(part)}), 0)
    before = [part for part in inner.body[:at] if any(isinstance(item, ast.Continue) for item in nodes_of(part))]
    last = inner.body[at]
    inside = isinstance(last, ast.If) and not last.orelse and not gives & {id(item) for item in nodes_of(last.test)}
    if len(before) == 1 and not inside:
        only = before[0]
        if isinstance(only, ast.If) and not only.orelse and isinstance(only.body[-1], ast.Continue):
            return only.test, False
        return None
    rest = {id(item) for part in inner.body[at + 1 :] for item in nodes_of(part)}
    return (last.test, True) if isinstance(last, ast.If) and inside and not before and not gives & rest else None


def _counts_up(inner: ast.For, test: ast.expr) -> bool:
    """Whether a count of the rounds is asked, `seen < warm_up`: it comes out otherwise some time."""
    counted = {ast.unparse(item.target) for item in nodes_of(inner) if isinstance(item, ast.AugAssign)}
    return any(isinstance(item, (ast.Name, ast.Attribute)) and ast.unparse(item) in counted for item in nodes_of(test))
