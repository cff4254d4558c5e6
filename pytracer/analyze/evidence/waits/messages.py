"""Who should have sent the message that a process waits for at a pipe."""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.waits.unanswered import Unanswered, unanswered
from pytracer.analyze.evidence.waits.wait_chain import at_words, running_children
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waits import end_of, main_stack, wait_of, was_asleep
from pytracer.analyze.kin import parent_of
from pytracer.analyze.naming import name_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView

_READS = ("recv", "recv_bytes", "recv_bytes_into")
_LONGEST = 60
_CLOSE = (
    "A child that has ended closes its end, but recv() raises EOFError only when the copy of that end in this process "
    "is closed, too: call close() on the child's end right after start(). See then why the child sent nothing (more)."
)
_COUNT = (
    "Each end waits until the other one sends: compare the order of send() and recv() at both lines; for each recv() "
    "the other end needs a send() before a recv() of its own, also on the way that leaves its loop. `poll(timeout)` "
    "before recv() does not wait for ever."
)


class BothWait(msgspec.Struct, frozen=True):
    """Children of a process that waits for a message, which wait for one themselves."""

    children: tuple[tuple[ProcessView, ProcessWait], ...]
    unanswered: Unanswered | None = None
    """What was sent to them, and they have no branch for."""

    @property
    def words(self) -> str:
        """`its child, process 8 (train.py), waited for one itself at train.py:20 in serve`."""
        view, wait = self.children[0]
        if self.unanswered is not None:
            return self.unanswered.words
        if len(self.children) > 1:
            return f"its {len(self.children)} children waited for one themselves{at_words(wait)}"
        return f"its child, {name_words([view])}, waited for one itself{at_words(wait)}"

    @property
    def advice(self) -> str:
        """The order of both ends."""
        return self.unanswered.advice if self.unanswered is not None else _COUNT


def both_wait(job: JobView, view: ProcessView, wait: ProcessWait) -> BothWait | None:
    """None where a child works, or nothing is known of one."""
    if wait.kind != "message":
        return None
    children = running_children(job, view)
    waits = [(item, found) for item in children if (found := wait_of(item)) is not None and found.kind == "message"]
    if not waits or len(waits) != len(children):
        return None
    return BothWait(tuple(waits), unanswered(view, wait, *waits[0]))


def serves_a_working_parent(job: JobView, view: ProcessView, wait: ProcessWait) -> bool:
    """Whether it waits for what its parent asks, and that one is at work: a child that serves requests is idle."""
    parent = parent_of(job, view)
    if wait.kind != "message" or parent is None or end_of(parent) is None or not main_stack(parent):
        return False
    return wait_of(parent) is None and not was_asleep(parent)


def gone_advice(wait: ProcessWait) -> str | None:
    """Of a wait for a message whose senders have all ended."""
    return _CLOSE if wait.kind == "message" else None


def asked_words(view: ProcessView, wait: ProcessWait) -> str | None:
    """`` `conn.recv()` ``, where that is the only such call of its line."""
    tree = syntax_tree(view.process.snapshot, wait.at) if wait.kind == "message" else None
    if tree is None or wait.at is None or wait.at.line is None:
        return None
    calls = [item for item in calls_on(tree, wait.at.line) if called_name(item) in _READS]
    return f"`{shortened(ast.unparse(calls[0]), _LONGEST)}`" if len(calls) == 1 else None
