"""How a process that stood still was ended: the signal, who sent it, and where its parent waited meanwhile."""

from __future__ import annotations

from pytracer.analyze.collectives.description import at_place, span_words
from pytracer.analyze.evidence.ends.sent_signals import deadly_signal
from pytracer.analyze.evidence.ends.signal_senders import from_time_limit, sender_words
from pytracer.analyze.evidence.waits.stood import Stood
from pytracer.analyze.evidence.waits.wait_chain import at_words
from pytracer.analyze.evidence.waits.wait_kinds import OF_DEVICE
from pytracer.analyze.evidence.waits.waits import wait_of
from pytracer.analyze.naming import name_words
from pytracer.analyze.platform.signals import signal_name
from pytracer.analyze.view import JobView, ProcessView

_OPEN = ("scheduled", "started")


def end_words(job: JobView, view: ProcessView, found: Stood, *, short: bool = False) -> str:
    """`SIGTERM, sent by ..., ended it at a time limit`; of one that waited for it, with that one's line.

    The evidence has the sender, too: `short` leaves it out.
    """
    sent, by = deadly_signal(found.ended), sender_words(job, found.ended)
    name = signal_name(sent.signal) if sent is not None else "a signal"
    limit = " at a time limit" if from_time_limit(job, found.ended) else ""
    if found.ended.index == view.index:
        return f"{name}{f', sent by {by},' if by and not short else ''} ended it{limit}"
    end = f"{name} ended "
    wait = next((wait for item, wait in found.waiting if item.index == found.ended.index), None)
    at = at_words(wait) if wait is not None else ""
    if not at:
        return f"{end}{name_words([found.ended])}{limit}"
    own, ended = view.process.snapshot, found.ended.process
    is_parent = own.ppid == ended.snapshot.pid
    who = f"its parent (pid {own.ppid})" if ended.role != "rank" else f"its parent, {name_words([found.ended])},"
    return f"{who if is_parent else name_words([found.ended])} waited{at} until {end}it{limit}"


def ranks_meanwhile(job: JobView, view: ProcessView) -> str:
    """`; meanwhile rank 0 was in all_reduce at train.py:53 in main`: ranks that do not stand in their devices."""
    found = []
    for other in job.views:
        last = other.process.snapshot.collectives[-1:]
        if other.index == view.index or other.process.rank is None or not last or last[0].state not in _OPEN:
            continue
        wait = wait_of(other)
        if wait is None or wait.kind not in OF_DEVICE:
            found.append((last[0], other.process.rank))
    if not found:
        return ""
    call = found[0][0]
    ranks = span_words([rank for item, rank in found if (item.op, item.sequence_nr) == (call.op, call.sequence_nr)])
    return f"; meanwhile {ranks} {'was' if len(ranks.split()) == 2 else 'were'} in {call.op}{at_place(call)}"
