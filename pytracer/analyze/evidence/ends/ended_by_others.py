"""Processes that another one of the job ended by a signal, and that none of their parents had asked to end.

A parent dismisses its children by SIGTERM, which is no news; also by a program without Python that it starts for that
(`kill`, `pkill`). A watchdog that ends the process above it, or a process that ends its neighbour, is a death, though
the job goes on without it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer.analyze.deaths.tree import Tree
from pytracer.analyze.evidence.ends.sent_signals import Sent, deadly_signal
from pytracer.analyze.evidence.ends.signal_senders import (
    chain_words,
    command_evidence,
    knows_sender,
    noted_evidence,
    recorded_sender,
    sender_is_sure,
)
from pytracer.analyze.naming import place_words, subject_words
from pytracer.analyze.platform.signals import SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, signal_name
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence

_SHOWN = 4
_ENDING = (SIGTERM, SIGKILL, SIGHUP, SIGINT, SIGQUIT)


class EndedByOther(msgspec.Struct, frozen=True):
    """A process, the signal that ended it, and the recorded process that sent it."""

    view: ProcessView
    sent: Sent
    sender: ProcessView


def ended_by_others(job: JobView) -> list[EndedByOther]:
    """In order; nothing where a sender is not sure, or not recorded."""
    tree = Tree(job.views)
    return [found for view in job.views if (found := _ended_by_other(job, tree, view)) is not None]


def _ended_by_other(job: JobView, tree: Tree, view: ProcessView) -> EndedByOther | None:
    if view.process.status_kind != "signaled" or view.process.signal not in _ENDING:
        return None
    if not knows_sender(view) or not sender_is_sure(view):
        return None
    sent = deadly_signal(view)
    sender = recorded_sender(job, view, sent) if sent is not None and sent.sender_pid else None
    if sent is None or sender is None or sender.index == view.index:
        return None
    above = [item.index for item in tree.ancestors(view)]
    return None if sender.index in above or _is_tool(tree, sender, view, above) else EndedByOther(view, sent, sender)


def _is_tool(tree: Tree, sender: ProcessView, view: ProcessView, above: list[int]) -> bool:
    """Whether a parent of the process may have started the sender to end it: a program without Python's records."""
    starters = [item.index for item in tree.ancestors(sender)]
    below = view.index in starters
    return sender.process.snapshot.versions.python is None and not below and any(item in above for item in starters)


def words_of(job: JobView, found: Sequence[EndedByOther]) -> str:
    """`Process 12 (a.py) was ended by SIGTERM, sent by its own child, process 13 (watch.py), at watch.py:3 in f`."""
    first = found[0]
    more = f"; {len(found) - 1} more {'was' if len(found) == 2 else 'were'} ended so as well" if found[1:] else ""
    signal, sender = signal_name(first.sent.signal), chain_words(job, first.view, first.sent)
    return f"{subject_words([first.view])} was ended by {signal}, sent by {sender}{more}"


def advice_of(found: Sequence[EndedByOther]) -> str:
    """Where to look, and what the parent of the process has to look at."""
    frame = found[0].sent.frame
    at = f"{place_words(frame)}, which sends the signal, and to which process" if frame is not None else None
    what = f"Check {at or 'why the sender ends that process'}"
    return f"{what}. If the job needs the process, let its parent check how it ended (`exitcode`, `returncode`)."


def evidence_of(found: Sequence[EndedByOther]) -> list[Evidence]:
    """What the senders noted, and their command lines."""
    own = (item for one in found[:_SHOWN] for item in (command_evidence(one.view), *noted_evidence(one.view)))
    return [item for item in own if item is not None]
