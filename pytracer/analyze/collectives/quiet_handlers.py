"""An `except` that goes on as if nothing were: what one rank hides from the others."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from pytracer.analyze.collectives.held_counts import caught_none
from pytracer.analyze.evidence.syntax.gradients import is_over_parameters
from pytracer.analyze.evidence.syntax.loops import last_of, loops_around
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans, spans_body
from pytracer.analyze.naming import place_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_LEAVING = (ast.Continue, ast.Return, ast.Break)
_EXITS = ("sys.exit", "exit", "os._exit", "os.abort", "quit")


def quiet_handler(
    snapshot: Snapshot,
    way: Sequence[PythonFrame],
    other: str,
    unless: int | None = None,
    absent: ProcessView | None = None,
) -> str | None:
    """An `except` around a line of the way that goes on as if nothing were: what it hides from the other ranks.

    `unless`: a line of the first frame's function; a `try` that is around both says nothing. `absent`: the other rank;
    a handler whose count of errors is 0 there says nothing, either.
    """
    found = quiet_place(snapshot, way, unless, absent)
    if found is None:
        return None
    frame, handler = found
    return (
        f"{place_words(frame)} is in a `try` whose `except` (line {handler.lineno}) goes on: an error that {other} "
        "alone caught there would cost it this collective. Look for it in that rank's output; then let the error end "
        "the rank, or all ranks skip together."
    )


def quiet_place(
    snapshot: Snapshot, way: Sequence[PythonFrame], unless: int | None = None, absent: ProcessView | None = None
) -> tuple[PythonFrame, ast.ExceptHandler] | None:
    """As quiet_handler: the line of the way, and what is around it."""
    for position in range(len(way) - 1, -1, -1):
        frame = way[position]
        tree = syntax_tree(snapshot, frame)
        if tree is None or frame.line is None:
            continue
        for item in own_nodes(scope_of(tree, frame.line)):
            if not isinstance(item, ast.Try) or not spans_body(item.body, frame.line):
                continue
            if position == 0 and unless is not None and spans(item, unless):
                continue
            quiet = (handler for handler in item.handlers if goes_on(handler))
            handler = next((one for one in quiet if absent is None or not _ran_never(absent, frame, tree, one)), None)
            if handler is not None:
                return frame, handler
    return None


def _ran_never(view: ProcessView, frame: PythonFrame, tree: ast.Module, handler: ast.ExceptHandler) -> bool:
    return frame.file is not None and caught_none(view, frame.file, tree, handler)


def handlers_that_leave(
    tree: ast.Module, line: int, elsewhere: int | None = None
) -> Iterator[tuple[ast.ExceptHandler, bool]]:
    """Each `except` that leaves a line of its function out and goes on, with whether the line is in its `try`.

    `elsewhere`: another line of the function, where the rank went on; a `try` around both decides nothing.
    """
    for item in own_nodes(scope_of(tree, line)):
        if not isinstance(item, ast.Try) or (elsewhere is not None and spans(item, elsewhere)):
            continue
        inside = spans_body(item.body, line)
        above = (item.end_lineno or 0) < line
        for handler in item.handlers:
            leaves = isinstance(handler.body[-1], _LEAVING) and _same_round(tree, item.lineno, line)
            if (inside and goes_on(handler)) or (above and leaves):
                yield handler, inside


def _same_round(tree: ast.Module, above: int, line: int) -> bool:
    """Whether the same loops are around both, but for loops over parameters around the second, which have rounds."""
    outer, inner = loops_around(tree, above), loops_around(tree, line)
    return inner[: len(outer)] == outer and all(is_over_parameters(loop) for loop in inner[len(outer) :])


def goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether it may reach its end: nothing raises or ends the process there, or only in some cases."""
    for item in (*handler.body, last_of(handler.body)):
        call = item.value if isinstance(item, ast.Expr) else None
        exits = isinstance(call, ast.Call) and ast.unparse(call.func) in _EXITS
        if isinstance(item, ast.Raise) or exits:
            return False
    return True
