"""A message that isend() had begun and that never came: nobody waited for its Work.

isend() returns at once. gloo sends when the receiver asks for the message, as long as the Work is kept and the process
lives; what is left then is dropped without a word, and the receiver finds the connection closed.
"""

from __future__ import annotations

import ast
from typing import Literal

import msgspec

from pytracer._text import count_words
from pytracer.analyze.collectives.counterparts import counterpart
from pytracer.analyze.collectives.description import at_place, place_of
from pytracer.analyze.collectives.matching import UNFINISHED, state_of
from pytracer.analyze.collectives.ways import quoted
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.evidence.syntax.loops import loops_around
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans
from pytracer.analyze.naming import place_words
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Collective, Snapshot
from pytracer.report.job import Evidence, PythonFrame

_WAITS = ("wait", "is_completed")
_BEGINS = ("isend", "batch_isend_irecv")
_GLOO = "gloo"
_How = Literal["dropped", "kept", "last"]
_CLOSES_NS = 2_000_000_000  # a process lives on for a while when its connections are closed


class UnreceivedSend(msgspec.Struct, frozen=True):
    """`call`: what the sender had begun to send, at the line of `frame`; `received`: the receiver's call.

    `how`: whether the line drops the Work, or keeps it and nothing in its file waits for one; "last": something waits
    for the Work before, in the next round, and the sender ended behind this one.
    """

    sender: ProcessView
    receiver: ProcessView
    call: Collective
    received: Collective
    frame: PythonFrame
    name: str
    text: str | None
    how: _How

    @property
    def words(self) -> str:
        """`rank 0 dropped the Work of isend() at a.py:9 in f, and had ended ...`, for a receiver that was cut off."""
        rank, begun = self.sender.process.rank, f"the Work of {self.name}() at {place_words(self.frame)}"
        did = f"dropped {begun}" if self.how == "dropped" else f"never waited for {begun}"
        if self.how == "last":
            did = f"ended behind {self.name}() at {place_words(self.frame)} without waiting for its last Work"
            return f"rank {rank} {did}, with status 0, before this message was sent"
        return f"rank {rank} {did}, and had ended with status 0 before this message was sent"

    @property
    def lost_words(self) -> str:
        """The same of a sender that lives on."""
        return (
            f"rank {self.receiver.process.rank} was in recv{at_place(self.received)}, for the message of rank "
            f"{self.sender.process.rank} whose Work {place_words(self.frame)} drops"
        )

    @property
    def advice(self) -> str:
        """What to change at the line of the sender."""
        place, rank = place_words(self.frame), self.sender.process.rank
        text = f" ({self.text})" if self.text is not None else ""
        if self.how == "kept":
            change = f"Call wait() on each Work that {place}{text} begins"
        elif self.how == "last":
            change = f"Call wait() on the last Work that {place}{text} begins as well,"
        elif self.name == "isend":
            change = (
                f"At {place}{text} keep each Work and its tensor (`works.append((dist.isend(t, 1), t))`), "
                "and call wait() on all"
            )
        else:
            change = f"At {place}{text} keep the Works that it returns, with their tensors, and call wait() on all"
        return (
            f"{change} before rank {rank} ends: {self.name}() only begins to send, and what the receiver has not taken "
            "is lost when the Work is deleted or the process ends. dist.send() waits by itself."
        )

    @property
    def evidence(self) -> Evidence:
        """Its calls from that line to this rank."""
        snapshot = self.sender.process.snapshot
        calls = [
            item
            for item in snapshot.collectives
            if item.op == "send" and (item.group, item.peer) == (self.call.group, self.call.peer)
        ]
        return Evidence(
            "collective-call",
            f"rank {self.sender.process.rank} had begun {count_words(len(calls), 'send')} to rank "
            f"{self.receiver.process.rank}, this one at {place_words(self.frame)}",
            ranks=[self.sender.process.rank or 0],
            group=self.call.group,
            op=self.call.op,
            sequence_nr=self.call.sequence_nr,
            python=self.frame,
        )


def unreceived_send(job: JobView, view: ProcessView) -> UnreceivedSend | None:
    """Of a rank that failed to receive its last message, whose sender had ended well; None if its wait is not known."""
    found = _unreceived(job, view)
    if found is None or not _ended_well_before(found.sender, view):
        return None
    calls = found.sender.process.snapshot.collectives
    is_last = found.call.number == max((item.number for item in calls), default=None)
    return found if found.how != "last" or is_last else None


def lost_message(job: JobView, view: ProcessView) -> UnreceivedSend | None:
    """Of a rank that is in the receive of a message whose Work was dropped, also by a sender that lives on."""
    found = _unreceived(job, view)
    return found if found is not None and found.how == "dropped" else None


def _unreceived(job: JobView, view: ProcessView) -> UnreceivedSend | None:
    calls = view.process.snapshot.collectives
    last = max(calls, key=lambda item: item.number, default=None)
    if last is None or last.op != "recv" or last.backend != _GLOO or state_of(view.process, last) not in UNFINISHED:
        return None
    found = counterpart(job, view, last)
    frame = place_of(found[1]) if found is not None else None
    if found is None or frame is None:
        return None
    sender, item = found
    begun = _begun(sender.process.snapshot, frame)
    if begun is None:
        return None
    text = quoted(sender.process.snapshot, frame, frame.line or 0)
    return UnreceivedSend(sender, view, item, last, frame, begun[0], text, begun[1])


def _ended_well_before(sender: ProcessView, view: ProcessView) -> bool:
    if not sender.left_well:
        return False
    ends = (sender.ended_ns, view.ended_ns)
    return None not in ends and (sender.ended_ns or 0) <= (view.ended_ns or 0) + _CLOSES_NS


def _begun(snapshot: Snapshot, frame: PythonFrame) -> tuple[str, _How] | None:
    """The function that began to send, and what becomes of its Work; None where it is returned."""
    tree = syntax_tree(snapshot, frame)
    if tree is None or frame.line is None:
        return None
    calls = [item for item in calls_on(tree, frame.line) if called_name(item) in _BEGINS]
    if len(calls) != 1:
        return None
    (call,) = calls
    name = called_name(call) or ""
    drops = any(
        isinstance(item, ast.Expr) and item.value is call and spans(item, frame.line)
        for item in nodes_of(scope_of(tree, frame.line))
    )
    if drops:
        return name, "dropped"
    waits = [item for item in nodes_of(tree) if isinstance(item, ast.Attribute) and item.attr in _WAITS]
    if any(isinstance(item, ast.Return) and spans(item, frame.line) for item in nodes_of(tree)):
        return None
    if waits:
        return (name, "last") if _waits_before(tree, call, waits) else None
    return name, "kept"


def _waits_before(tree: ast.Module, call: ast.Call, waits: list[ast.Attribute]) -> bool:
    """Whether a round of the loop waits only for the Work of the one before: nothing does for the last."""
    kept = [
        item
        for item in own_nodes(scope_of(tree, call.lineno))
        if isinstance(item, ast.Assign) and item.value is call and len(item.targets) == 1
    ]
    loops = loops_around(tree, call.lineno)
    scope, end = scope_of(tree, call.lineno), (loops[-1].end_lineno or 0) if loops else 0
    target = ast.unparse(kept[0].targets[0]) if kept else ""
    reads = (item for item in own_nodes(scope) if isinstance(item, (ast.Name, ast.Attribute)))
    if any(item.lineno > end and ast.unparse(item) == target for item in reads):
        return False  # something behind the loop has it
    return (
        len(kept) == 1
        and bool(loops)
        and all(
            ast.unparse(item.value) == ast.unparse(kept[0].targets[0]) and loops[-1].lineno < item.lineno < call.lineno
            for item in waits
        )
    )
