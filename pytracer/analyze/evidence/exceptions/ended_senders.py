"""A tensor that was received when the process that had put it into a queue or pipe was no longer there.

What travels is the handle of a file descriptor, which the receiver fetches from a socket of the sender. Without the
sender nobody listens there: the file that is "not found" is that socket.
"""

from __future__ import annotations

from pytracer.analyze.deaths.lost_connection import through_sharer
from pytracer.analyze.evidence.exceptions.line_reasons import LineReason
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.failing.processes.ended_senders import (
    ends_before,
    getting_method,
    later_advice,
    received_from,
)
from pytracer.analyze.evidence.failing.processes.putting_lines import behind_puts, putting_lines
from pytracer.analyze.kin import children_of
from pytracer.analyze.naming import LineWords, first_names
from pytracer.analyze.view import JobView, ProcessView

_GONE = ("FileNotFoundError", "ConnectionRefusedError", "ConnectionResetError", "EOFError")
_SHOWN = 2


def ended_sender(job: JobView, view: ProcessView) -> LineReason | None:
    """None where no child had ended before, one still ran that may have sent it, or the line is not known."""
    exception, raised = view.exception, view.process.exception_mono_ns
    if exception is None or raised is None or exception.type not in _GONE:
        return None
    if not through_sharer(view.exception_stack):
        return None
    at = failing_line(view.process.snapshot, exception, view.exception_stack)
    got = received_from(at) if at is not None else None
    children = [item for item in children_of(job, view) if item.work is not None]
    ends = [item.process.ended_mono_ns for item in children]
    ended = [end for end in ends if end is not None and end <= raised]
    if at is None or got is None or not ended or len(ended) < len(children):
        return None
    wait = next(((item, spot) for item, spot in ends_before(at)), None)
    waited = at.in_file(wait[1].file, wait[0].lineno) if wait is not None else None
    sent = putting_lines(at, got)
    puts = [item.words for item in sent if not item.plain]
    advice = (
        later_advice(at, got, *wait)
        if wait is not None
        else f"Let the sender wait for an Event {behind_puts(at, sent)}, and set it behind the last "
        f"`{got}.{getting_method(at)}()`; or send numpy arrays, which are sent by value."
    )
    children.sort(key=lambda item: item.process.ended_mono_ns or 0, reverse=True)  # earlier ones are rarely the sender
    subject = _subject(exception.type, children, got, puts, waited, at)
    return LineReason(subject, advice, (*puts[:_SHOWN], *([waited] if waited is not None else [])))


def _subject(
    kind: str | None,
    children: list[ProcessView],
    got: str,
    puts: list[LineWords],
    waited: LineWords | None,
    at: FailingLine,
) -> str:
    """What was not there, who had ended, and which line saw to that."""
    many = len(children) > 1
    shown = first_names(children)
    put = f" at {' or '.join(puts)}" if 0 < len(puts) <= _SHOWN else f" by `{got}`"
    who = f"{shown}, one of which sent it{put}," if many else f"{shown}, which sent it{put},"
    well = all(item.left_well for item in children)
    had = f"had{' all' if len(children) > _SHOWN else ''} ended{' with status 0' if well else ''} before"
    order = f": {waited} waits for that before {at.here(at.line)} receives" if waited is not None else ""
    what = "the file is a socket" if kind == "FileNotFoundError" else "the other end is a socket"
    return f"{what} of the process that sent the tensor; {who} {had}{order}"
