"""Ends that timeout(1) made, as the job had not ended by its limit: its own status 124, and signals that it sent.

The status is no account of a rank that failed, and those that it ended did not end because of one.
"""

from __future__ import annotations

from msgspec import structs

from pytracer._started_package import program_name
from pytracer.analyze.deaths.tree import Tree
from pytracer.analyze.evidence.ends.sent_signals import last_request, sent_signals
from pytracer.analyze.view import Death, ProcessView, WhyKind

_OVER = 124  # coreutils 9, timeout.c: EXIT_TIMEDOUT


def at_time_limit(death: Death, tree: Tree) -> Death:
    """The death with that reason, where it had been judged a consequence of another one."""
    if death.primary is not False or death.kind not in (WhyKind.REPORTED, WhyKind.SENT, WhyKind.TEARDOWN):
        return death
    if _reached_limit(death.view, tree):
        return structs.replace(death, kind=WhyKind.LIMIT, why="ended the job at its time limit", of=None)
    if death.nature not in ("sent", "interrupt"):
        return death
    asked = last_request(death.view)
    for above in tree.ancestors(death.view):
        pid = above.process.snapshot.pid
        if asked is not None and asked.sender_pid == pid and _reached_limit(above, tree):
            why = f"ended by timeout, process {pid}, at its time limit"
            return structs.replace(death, kind=WhyKind.LIMIT, why=why, of=None)
    return death


def _reached_limit(view: ProcessView, tree: Tree) -> bool:
    """Whether it is a timeout(1) that had sent a signal by itself; it also passes on what it gets, and a status."""
    snapshot = view.process.snapshot
    if snapshot.versions.python is not None or program_name(snapshot.argv) != "timeout" or sent_signals(snapshot):
        return False
    below = [*tree.descendants(view)]
    if any(item.process.exit_code == _OVER for item in tree.children.get(view.index, ())):
        return False
    sent = any(sent.sender_pid == snapshot.pid for item in below for sent in sent_signals(item.process.snapshot))
    return bool(below) and (sent or view.process.exit_code == _OVER)
