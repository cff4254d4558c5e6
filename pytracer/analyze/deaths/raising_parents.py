"""Parents that ended their children by a signal on the way to an exception of their own: its consequence, no cause.

A `finally`, the end of a `with`, or a library such as mp.spawn ends the children before the exception reaches the top,
so that their ends are recorded first. A program that ends a child and then raises says why it did: there the child
stays first.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.deaths.lost_connection import lost_connection, lost_rpc
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.scopes import scope_of, spans_body
from pytracer.analyze.evidence.syntax.tries import tries_around
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import Death, ProcessView, RecordedSender
from pytracer.report.job import PythonFrame

_OF_TIME = Pattern(r"time[d ]*-?out|\bEmpty$", re.IGNORECASE)
_EXITS = Pattern(r"\b__a?exit__$")


def raised_beside_ending(parent: Death, children: Sequence[ProcessView], below: Sequence[Death]) -> bool:
    """Whether all deaths below a process that raised are of its own doing, and not what it raised for."""
    exception = parent.view.exception
    if parent.nature != "exception" or exception is None or parent.lost_peer:
        return False
    if lost_connection(parent.view) or lost_rpc(parent.view):
        return False
    if _OF_TIME.search(exception.type or "") or _OF_TIME.search(exception.message or ""):
        return False
    sent = [item for death in below if (item := ended_by(parent.view, death)) is not None]
    if not sent or (any(_was_why(parent, item) for item in sent) and not lost_children(parent.view, children)):
        return False
    first = min(item.send.mono_ns for item in sent)
    return all(ended_by(parent.view, death) is not None or _followed(death, first) for death in below)


def ended_by(parent: ProcessView, death: Death) -> RecordedSender | None:
    """The signal by which a process ended another one, where it alone noted to have done so."""
    own = parent.process.snapshot.path
    if death.nature != "sent" or any(item.sender.snapshot.path != own for item in death.view.senders):
        return None
    return next((item for item in death.view.senders if item.sure), None)


def lost_children(parent: ProcessView, children: Sequence[ProcessView]) -> list[ProcessView]:
    """Those that were gone when they got a signal of their parent's, which had not waited for them: the kernel had.

    A child that has ended keeps its number until its parent waits for it; with SIGCHLD ignored it does not. A child of
    multiprocessing's fork server is another one's.
    """
    snapshot = parent.process.snapshot
    collected = {wait.pid for wait in snapshot.waits}
    missed = {item.target for item in snapshot.sends if item.result == errno.ESRCH and not item.to_group}
    return [
        item
        for item in children
        if item.process.snapshot.pid in missed - collected
        and item.process.snapshot.ppid == snapshot.pid
        and item.process.status_kind == "exited"
    ]


def _followed(death: Death, sent_ns: int) -> bool:
    """What ended after that: a peer, and what the ended process had started."""
    sent = death.view.clock.relative(sent_ns)
    return sent is not None and death.last_ns >= sent and (death.lost_peer or death.nature in ("sent", "exit"))


def _was_why(parent: Death, item: RecordedSender) -> bool:
    """Whether the program ended it first, and raised behind that line or in its loop; or another thread ended it."""
    ended, raised = item.send.stack[::-1], parent.view.exception_stack[::-1]
    if not ended:
        return True
    for n, (one, other) in enumerate(zip(ended, raised)):  # noqa: B905 - up to the end of the shorter one
        if (one.file, one.function) != (other.file, other.function):
            return n == 0
        if one.line == other.line:
            continue
        leaves = any(_EXITS.search(frame.function or "") for frame in ended[n + 1 :])
        if leaves or is_library_file(other.file):
            return False
        ended_line, raised_line = one.line or 0, other.line or 0
        return raised_line > ended_line or _in_one_loop(parent.view, other, ended_line)
    return False


def _in_one_loop(view: ProcessView, raised: PythonFrame, ended_line: int) -> bool:
    """Whether a round before may have ended it: `while True: if hung: raise ...; ...; worker.terminate()`.

    Not where the line is that of a `finally` or `except` around the one that raised.
    """
    tree, line = syntax_tree(view.process.snapshot, raised), raised.line or 0
    loops = loops_around(tree, line) if tree is not None else []
    if tree is None or not any(item.lineno < ended_line <= (item.end_lineno or 0) for item in loops):
        return False
    return not any(
        any(spans_body(block, ended_line) for block in (item.finalbody, *(one.body for one in item.handlers)))
        for item in tries_around(scope_of(tree, line), line)
    )
