"""An exception of a handler: whether the program would have raised the first one again, so that this ended the run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.loops import loops_of
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import HandledExceptionReport, PythonFrame


class Handler(msgspec.Struct, frozen=True):
    """An `except` that caught a first exception and then failed at line `at`, in `statement`."""

    file: str
    line: int
    end: int  # its last line
    head: str  # `except ValueError as error`
    catches: frozenset[str]  # the names of its types without their modules; "" of a bare one
    alone: bool  # whether one simple statement is all that was tried
    at: int
    statement: ast.stmt | None
    tried: frozenset[str]  # names of the functions that the `try` calls
    behind: tuple[int, int] | None = None  # lines that only what was caught leads to: the `try` itself returns

    def has(self, line: int) -> bool:
        """Whether a line is one of it, or comes after what it caught."""
        return self.line <= line <= self.end or (self.behind is not None and self.behind[0] <= line <= self.behind[1])

    def tries_again(self, columns: Sequence[int] | None) -> bool:
        """Whether it calls a function that had been tried; `columns`: of the expression that failed, if known."""
        calls = [item for item in nodes_of(self.statement) if isinstance(item, ast.Call)] if self.statement else []
        spans = {(item.lineno, item.col_offset, item.end_lineno, item.end_col_offset): item for item in calls}
        one = spans.get((columns[0], columns[1], columns[2], columns[3])) if columns else None
        return bool({called_name(item) for item in ([one] if one is not None else calls)} & self.tried)


def handler_between(snapshot: Snapshot, stack: Sequence[PythonFrame], first: HandledExceptionReport) -> Handler | None:
    """The innermost `except` of the program in which the last exception was raised, or passed, after the first one."""
    lines = {(frame.file, frame.line) for frame in first.python_stack or ()}
    for frame in stack:
        if is_library_file(frame.file) or frame.file is None or frame.line is None:
            continue
        tree = syntax_tree(snapshot, frame)
        for item, handler in _handlers_at(tree, frame.line):
            if any(file == frame.file and line is not None and _within(item.body, line) for file, line in lines):
                last = behind_try(tree, item) if tree is not None else None
                return _handler(frame.file, frame.line, item, handler, last)
    return None


def _handlers_at(tree: ast.Module | None, line: int) -> Iterator[tuple[ast.Try, ast.ExceptHandler]]:
    """Innermost first."""
    found = [
        (item, handler)
        for item in (nodes_of(tree) if tree is not None else ())
        if isinstance(item, ast.Try)
        for handler in item.handlers
        if _within(handler.body, line)
    ]
    return iter(sorted(found, key=lambda each: -each[1].lineno))


def caught_before(tree: ast.Module, line: int) -> tuple[ast.Try, ast.ExceptHandler] | None:
    """The `try` and the handler that a line is in, or the only one that can have led to it."""
    inside = next(_handlers_at(tree, line), None)
    if inside is not None:
        return inside
    scope = scope_of(tree, line)
    tries = (item for item in getattr(scope, "body", ()) if isinstance(item, ast.Try) and len(item.handlers) == 1)
    for item in tries:
        behind = behind_try(tree, item)
        if behind is not None and behind[0] <= line <= behind[1]:
            return item, item.handlers[0]
    return None


def failed_tries(tree: ast.Module, line: int) -> tuple[ast.For | ast.While, ast.Try, ast.ExceptHandler] | None:
    """The loop that a line comes after, each round of which tries something that would have returned."""
    for loop in loops_of(scope_of(tree, line)):
        behind = _within(loop.orelse, line) or line > (loop.end_lineno or line)
        tries = [item for item in loop.body if isinstance(item, ast.Try) and len(item.handlers) == 1]
        if not behind or isinstance(loop, ast.AsyncFor) or len(tries) != 1:
            continue
        item, handler = tries[0], tries[0].handlers[0]
        leaves = any(isinstance(node, (ast.Raise, ast.Return)) for node in nodes_of(handler))
        left = [node for part in loop.body if part is not item for node in nodes_of(part)]
        skips = any(isinstance(node, (ast.Break, ast.Continue)) for node in left)
        skips |= any(isinstance(node, ast.Break) for node in nodes_of(item))
        if isinstance(item.body[-1], ast.Return) and not leaves and not skips:
            return loop, item, handler
    return None


def head_of_handler(handler: ast.ExceptHandler) -> str:
    """`except ValueError`."""
    return f"except {ast.unparse(handler.type)}" if handler.type is not None else "except"


def behind_try(tree: ast.Module, item: ast.Try) -> tuple[int, int] | None:
    """The lines of its function behind a `try` that ends with `return`: a handler came before them."""
    scope, end = scope_of(tree, item.lineno), item.end_lineno or item.lineno
    if isinstance(scope, ast.Module) or not isinstance(item.body[-1], ast.Return) or item.orelse:
        return None
    return (end + 1, scope.end_lineno or end) if any(part is item for part in getattr(scope, "body", ())) else None


def _handler(file: str, at: int, item: ast.Try, handler: ast.ExceptHandler, behind: tuple[int, int] | None) -> Handler:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    failed = [
        node
        for node in nodes_of(handler)
        if isinstance(node, ast.stmt) and node.lineno <= at <= (node.end_lineno or node.lineno)
    ]
    return Handler(
        file,
        handler.lineno,
        handler.end_lineno or handler.lineno,
        head_of_handler(handler),
        frozenset(ast.unparse(kind).rpartition(".")[2] if kind is not None else "" for kind in kinds),
        len(item.body) == 1 and not hasattr(item.body[0], "body"),
        at,
        failed[-1] if failed else None,
        frozenset(
            name
            for node in item.body
            for part in nodes_of(node)
            if isinstance(part, ast.Call) and (name := called_name(part)) is not None
        ),
        behind,
    )


def ended_by_first(snapshot: Snapshot, stack: Sequence[PythonFrame], first: HandledExceptionReport) -> bool:
    """Whether a `finally`, an `except` that ends with `raise`, or the end of a `with` failed on its way."""
    lines = {(frame.file, frame.line) for frame in first.python_stack or ()}
    for frame in stack:
        if is_library_file(frame.file) or frame.line is None:
            continue
        tree = syntax_tree(snapshot, frame)
        for item in nodes_of(tree) if tree is not None else ():
            tried = _left_by(item, frame.line)
            if any(file == frame.file and line is not None and _within(tried, line) for file, line in lines):
                return True
    return False


def _left_by(item: ast.AST, line: int) -> Sequence[ast.stmt]:
    """What an exception leaves by way of that line, and goes on; of a `with`, `__exit__` is called at its head."""
    if isinstance(item, (ast.With, ast.AsyncWith)):
        return item.body if item.lineno <= line < item.body[0].lineno else ()
    return [*item.body, *item.orelse] if isinstance(item, ast.Try) and _passes_on(item, line) else ()


def _passes_on(item: ast.Try, line: int) -> bool:
    """Whether the line is in a part of it behind which the exception goes on."""
    if _within(item.finalbody, line):
        return not any(isinstance(part, ast.Return) for node in item.finalbody for part in nodes_of(node))
    for handler in item.handlers:
        last = handler.body[-1]
        if _within(handler.body, line):
            return isinstance(last, ast.Raise) and last.lineno != line and not _forgets(last)
    return False


def _forgets(node: ast.Raise) -> bool:
    """`raise Other() from None`."""
    return is_none(node.cause)


def _within(nodes: Sequence[ast.stmt], line: int) -> bool:
    return any(node.lineno <= line <= (node.end_lineno or node.lineno) for node in nodes)
