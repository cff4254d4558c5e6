"""A comparison with the exit status of a process that still ran: it is None until the process has ended."""

from __future__ import annotations

import ast

from pytracer._text import capital
from pytracer.analyze.evidence.exceptions.line_reasons import LineReason
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.kin import children_of
from pytracer.analyze.naming import first_names
from pytracer.analyze.view import JobView, ProcessView

_STATUSES = ("exitcode", "returncode")


def running_child(job: JobView, view: ProcessView) -> LineReason | None:
    """None where no child of the process ran on when the status was read. Its line: a wait with a time limit."""
    own, raised = view.exception, view.process.exception_mono_ns
    if own is None or raised is None or own.type != "TypeError" or "'NoneType'" not in (own.message or ""):
        return None
    at = failing_line(view.process.snapshot, own, view.exception_stack)
    asked = _asked(at) if at is not None else None
    if at is None or asked is None:
        return None
    running = [
        item
        for item in children_of(job, view)
        if item.process.snapshot.created_mono_ns <= raised < (item.process.ended_mono_ns or raised + 1)
    ]
    if not running:
        return None
    wait = _limited_wait(at)
    place = at.here(wait.lineno) if wait is not None else None
    waits = (
        f"{capital(place)} (`{short(source(wait))}`) returns when its time is over, too. "
        if place is not None and wait is not None
        else ""
    )
    owner = asked.rpartition(".")[0]
    ends = "is_alive()" if asked.endswith(_STATUSES[0]) else "poll() is None"
    return LineReason(
        f"`{asked}` is None until that process has ended, and {first_names(running)} still ran",
        f"{waits}Before line {at.line} ask whether `{owner}` still runs ({ends}): then wait on, or end it and say so. "
        "If it should have ended by then, look at what it does (`pytracer attach PID`).",
        (place,) if place is not None else (),
    )


def _asked(at: FailingLine) -> str | None:
    """`worker.exitcode`, of a comparison or a sum."""
    if not at.own or at.node is None:
        return None
    kinds = (ast.Compare, ast.BinOp)
    used = [part for item in nodes_of(at.node) if isinstance(item, kinds) for part in ast.iter_child_nodes(item)]
    found = [item for item in used if isinstance(item, ast.Attribute) and item.attr in _STATUSES]
    asked = source(found[0]) if len(found) == 1 else None
    if asked is None or at.values.get(asked, "None") != "None" or not _is_started(at, found[0]):
        return None
    return asked


def _is_started(at: FailingLine, asked: ast.Attribute) -> bool:
    """Whether it may be of a process that runs: not one without start(), nor an attribute of the program's own."""
    nodes = [item for tree in at.files.values() for item in nodes_of(tree)]
    attributes = [item for item in nodes if isinstance(item, ast.Attribute) and item.attr == asked.attr]
    if any(isinstance(item.ctx, ast.Store) for item in attributes):
        return False
    made = at.made(asked.value)
    if asked.attr == _STATUSES[1] or made is None or not isinstance(made.node, ast.Call):
        return True
    if called_name(made.node) != "Process" or made.spot.scope is not at.scope:
        return True
    owner = ast.unparse(asked.value)
    starts = [item for item in nodes_of(at.scope) if isinstance(item, ast.Call) and called_name(item) == "start"]
    return any(isinstance(item.func, ast.Attribute) and ast.unparse(item.func.value) == owner for item in starts)


def _limited_wait(at: FailingLine) -> ast.Call | None:
    """`worker.join(timeout=2)` above the line, the last one."""
    waits = [
        item
        for item in nodes_of(at.scope)
        if isinstance(item, ast.Call) and called_name(item) in ("join", "wait") and item.lineno < at.line
        if isinstance(item.func, ast.Attribute)
        if (limit := argument_at(item, 0, "timeout")) is not None and not is_none(limit)
    ]
    return max(waits, key=lambda item: item.lineno, default=None)
