"""Exceptions that a process was handling when it called a collective: the reason why it was there and not elsewhere."""

from __future__ import annotations

import ast

import msgspec

from pytracer._library_files import is_library_file
from pytracer.analyze.collectives.call_sites import site_of
from pytracer.analyze.deaths.peer_errors import mentions_lost_peer, speaks_of_lost_peer
from pytracer.analyze.evidence.phrases import error_at_words
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans_body
from pytracer.analyze.naming import line_in, name_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import Evidence, HandledExceptionReport, PythonFrame


class Handled(msgspec.Struct, frozen=True):
    """An exception that the program itself had caught, or that a `finally` of the program delayed."""

    view: ProcessView
    report: HandledExceptionReport

    @property
    def words(self) -> str:
        """`ValueError: no such file at train.py:21 in step`."""
        return error_at_words(self.report)

    @property
    def frame(self) -> PythonFrame | None:
        """The innermost line of the program itself."""
        return next((item for item in self.report.python_stack or () if not is_library_file(item.file)), None)

    @property
    def block(self) -> str | None:
        """``the `finally` of line 124``, that the program was in: of a `try` that the exception came out of."""
        frames = [item for item in self.view.python_stack or () if not is_library_file(item.file)]
        raised = [(item.file, item.line or 0) for item in self.report.python_stack or ()]
        for frame in frames:
            tree = syntax_tree(self.view.process.snapshot, frame)
            nodes = own_nodes(scope_of(tree, frame.line)) if tree is not None and frame.line is not None else ()
            for item in (node for node in nodes if isinstance(node, ast.Try)):
                came = any(file == frame.file and spans_body(item.body, line) for file, line in raised)
                found = _block_at(item, frame.line or 0) if came else None
                if found is not None:
                    return f"the `{found[0]}` of {line_in(frame.file, found[1], frames[0].file)}"
        return None

    @property
    def evidence(self) -> Evidence:
        """That it was being handled."""
        return Evidence(
            "exception",
            f"{name_words([self.view])} was handling {self.words}",
            rank=self.view.process.rank,
            pid=self.view.process.snapshot.pid,
            exception=self.report.type,
            text=self.report.message,
            python=self.frame,
        )


def _block_at(item: ast.Try, line: int) -> tuple[str, int] | None:
    """Of a `try`, `finally` or `except` with the first line of its block, or its own, where it has the line."""
    if spans_body(item.finalbody, line):
        return "finally", item.finalbody[0].lineno
    return next((("except", part.lineno) for part in item.handlers if spans_body(part.body, line)), None)


def handled_in(view: ProcessView, call: Collective) -> Handled | None:
    """What the program was handling in a call that then failed, or in which it stood until its end."""
    site = site_of(call)
    return handled_at_end(view) if site is not None and site in _frames(view) else None


def handled_at_end(view: ProcessView) -> Handled | None:
    """What the program was handling when its communication failed, or when it was ended.

    Not what a library caught for itself, nor a lost peer: that is no reason.
    """
    exception = view.exception
    if view.raised and exception is not None:
        found = (exception.context or []) if mentions_lost_peer(view) else []
    else:
        found = [view.handled] if view.handled is not None else []
    return next((Handled(view, item) for item in found if _is_of_program(item)), None)


def _frames(view: ProcessView) -> set[tuple[str | None, str | None, int | None]]:
    """Where the exception was raised, or where all threads were at the end: a watchdog ends the process on its own."""
    if view.raised:
        return {(frame.file, frame.function, frame.line) for frame in view.exception_stack}
    snapshot = view.process.snapshot
    ends = [end for end in (view.crash, snapshot.ending, snapshot.live) if end is not None]
    threads = ends[0].python_threads if ends else ()
    return {(frame.file, frame.function, frame.line) for _, frames in threads for frame in frames}


def _is_of_program(item: HandledExceptionReport) -> bool:
    """The outermost frame of a traceback is the one that caught it."""
    stack = item.python_stack or []
    return bool(stack) and not is_library_file(stack[-1].file) and not speaks_of_lost_peer(item)
