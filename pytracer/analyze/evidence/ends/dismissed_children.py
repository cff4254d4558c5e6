"""Children that a process had ended itself before it stood still: what they did not finish may be what it waits for."""

from __future__ import annotations

from collections.abc import Iterator

from pytracer._text import time_words
from pytracer.analyze.evidence.ends.sent_signals import deadly_signal
from pytracer.analyze.kin import children_of
from pytracer.analyze.naming import name_words, place_words
from pytracer.analyze.platform.signals import signal_name
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence

_MOST = 2
_ITS_OWN_END_NS = 1_000_000_000  # what it ends within that is a part of its own end


def dismissed_evidence(job: JobView, view: ProcessView) -> Iterator[Evidence]:
    """The last ones first, with the line that sent the signal where that was noted."""
    pid, ended = view.process.snapshot.pid, view.ended_ns
    last = ended - _ITS_OWN_END_NS if ended is not None else None
    own = [
        item
        for item in children_of(job, view)
        if item.ended_ns is not None and (last is None or item.ended_ns < last) and _sender(item) == pid
    ]
    for child in sorted(own, key=lambda item: item.ended_ns or 0, reverse=True)[:_MOST]:
        frame = next((item.frame for item in child.senders if item.frame is not None), None)
        at = f" at {place_words(frame)}" if frame is not None else ""
        before = f", {time_words(ended - (child.ended_ns or 0))} before" if ended is not None else ""
        number = child.process.signal
        by = f" by {signal_name(number)}" if number is not None else ""
        yield Evidence(
            "signal",
            f"it had ended {name_words([child])} itself{by}{at}{before}",
            pid=child.process.snapshot.pid,
            signal=signal_name(number) if number is not None else None,
            python=frame,
        )


def _sender(view: ProcessView) -> int | None:
    sent = deadly_signal(view)
    noted = next((item.sender.snapshot.pid for item in view.senders), None)
    return noted if sent is None or not sent.sender_pid else sent.sender_pid
