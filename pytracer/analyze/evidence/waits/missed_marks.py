"""The task_done() that an exception kept a worker from: whoever waits in join() of that queue waits for its item."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

import msgspec

from pytracer._library_files import is_library_file, of_multiprocessing
from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, qualified_name, scope_of, spans, spans_body
from pytracer.analyze.evidence.waits.undone_items import DONE, call_owner, takes_item
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_QUEUES = of_multiprocessing("queues")
_LONGEST = 60
_LEAVES = (ast.Break, ast.Continue, ast.Return, ast.Raise)


class MissedMark(msgspec.Struct, frozen=True):
    """`call`: `jobs.task_done()`, at `line` of `function`."""

    file: str | None
    line: int
    call: str
    function: str


def missed_mark(worker: ProcessView, file: str | None, names: Collection[str]) -> MissedMark | None:
    """Of the item that a worker had taken when its exception came.

    None where a `finally` or a handler makes the call, where it may have been made before, or nothing was taken.

    Args:
        worker: Which raised it.
        file: In which the queue has these names; in another one it may have any.
        names: See above.
    """
    stack = worker.exception_stack
    for inner, frame in zip((None, *stack), stack, strict=False):
        tree = syntax_tree(worker.process.snapshot, frame) if not is_library_file(frame.file) else None
        if tree is None or frame.line is None:
            continue
        asks = inner is not None and (inner.file or "").endswith(_QUEUES)  # get() itself failed
        found = None if asks else _in_function(tree, frame.line, names if frame.file == file else None)
        if found is not None:
            scope = scope_of(tree, frame.line)
            text = shortened(ast.unparse(found), _LONGEST)
            return MissedMark(frame.file, found.lineno, text, qualified_name(tree, scope, "the module"))
    return None


def _in_function(tree: ast.Module, line: int, names: Collection[str] | None) -> ast.Call | None:
    """The call that the way on from a line comes to: the last one of the loop in which the item was taken."""
    scope = scope_of(tree, line)
    nodes = [*own_nodes(scope)]
    found: list[ast.Call] = []
    for name in {own for item in nodes if (own := call_owner(item, (DONE,))) is not None}:
        if names is not None and name not in names:
            continue
        taken = max((item.lineno for item in nodes if takes_item(item, name) and item.lineno <= line), default=None)  # type: ignore[attr-defined]
        calls = [item for item in nodes if isinstance(item, ast.Call) and call_owner(item, (DONE,)) == name]
        if taken is None or _may_be_made(nodes, calls, taken, line):
            continue
        later = [item for item in calls if item.lineno > line and _in_one_round(tree, taken, item.lineno)]
        found += sorted(later, key=lambda item: item.lineno)[-1:]
    return found[0] if len(found) == 1 else None


def _may_be_made(nodes: Sequence[ast.AST], calls: Sequence[ast.Call], taken: int, line: int) -> bool:
    """Whether the call was made before the line, or is made on the way out."""
    if any(taken <= item.lineno <= line and not _left_there(nodes, item, line) for item in calls):
        return True
    for item in nodes:
        if isinstance(item, ast.Try) and spans(item, line):
            ways = [*item.finalbody, *(part for handler in item.handlers for part in handler.body)]
            if any(part is call for way in ways for part in nodes_of(way) for call in calls):
                return True
    return False


def _left_there(nodes: Sequence[ast.AST], call: ast.Call, line: int) -> bool:
    """Whether it stands in a branch that leaves the round: `if job is None: jobs.task_done(); break`."""
    return any(
        spans_body(body, call.lineno) and not spans_body(body, line) and isinstance(body[-1], _LEAVES)
        for body in _branches(nodes)
    )


def _branches(nodes: Sequence[ast.AST]) -> Iterator[list[ast.stmt]]:
    for item in nodes:
        if isinstance(item, ast.If):
            yield item.body
            yield from [item.orelse] if item.orelse else []
        elif isinstance(item, ast.ExceptHandler):
            yield item.body


def _in_one_round(tree: ast.Module, taken: int, mark: int) -> bool:
    """Whether each item that is taken comes to the mark: no loop around the one is not around the other."""
    around = loops_around(tree, mark)
    return not around or around[-1].lineno <= taken
