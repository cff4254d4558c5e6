"""A tensor that was received when the process that had put it into a queue or pipe was no longer there.

What travels is the handle of a file descriptor, which the receiver fetches from a socket of the sender. Without the
sender nobody listens there: the file that is "not found" is that socket.
"""

from __future__ import annotations

import re

import msgspec

from pytracer._text import list_words, time_words
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.failing.processes.ended_senders import (
    ends_before,
    getting_method,
    later_advice,
    received_from,
)
from pytracer.analyze.evidence.failing.processes.putting_lines import putting_lines
from pytracer.analyze.kin import children_of
from pytracer.analyze.naming import LineWords, name_words
from pytracer.analyze.view import JobView, ProcessView

_SHARER = re.compile(r"/multiprocess(?:ing)?/resource_sharer\.py$")
_GONE = ("FileNotFoundError", "ConnectionRefusedError", "ConnectionResetError", "EOFError")
_SHOWN = 2


class EndedSender(msgspec.Struct, frozen=True):
    """`lines`: those that put the tensor and that waited for the sender's end, as far as they are known."""

    subject: str
    advice: str
    lines: tuple[LineWords, ...]

    @property
    def behind(self) -> Behind:
        """These lines; the queue itself is not at fault."""
        return Behind.of([], *self.lines)


def ended_sender(job: JobView, view: ProcessView) -> EndedSender | None:
    """None where no child had ended before, one still ran that may have sent it, or the line is not known."""
    exception, raised = view.exception, view.process.exception_mono_ns
    if exception is None or raised is None or exception.type not in _GONE:
        return None
    if not any(_SHARER.search(frame.file or "") for frame in view.exception_stack):
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
    puts = putting_lines(at, got)
    advice = (
        later_advice(at, got, *wait)
        if wait is not None
        else f"Let the sender wait for an Event {_behind(puts)}, and set it behind the last "
        f"`{got}.{getting_method(at)}()`; or send numpy arrays, or use "
        "torch.multiprocessing.set_sharing_strategy('file_system')."
    )
    subject = _subject(children, raised - max(ended), got, puts, waited, at)
    missing = " What is not found or refuses is the sender's socket, no file of the program."
    return EndedSender(subject, f"{advice}{missing}", (*puts[:_SHOWN], *([waited] if waited is not None else [])))


def _subject(
    children: list[ProcessView], ago_ns: int, got: str, puts: list[LineWords], waited: LineWords | None, at: FailingLine
) -> str:
    """Who had ended, how long before, and which line saw to that."""
    many = len(children) > 1
    if many:
        names = list_words([name_words([item]) for item in children[:_SHOWN]])
        more = f" and {len(children) - _SHOWN} more" if len(children) > _SHOWN else ""
        who = f"{names}{more}, one of which sent a tensor"
    else:
        who = f"{name_words(children)}, which sent a tensor"
    put = f" at {list_words([*puts[:_SHOWN]])}" if 0 < len(puts) <= _SHOWN else f" by `{got}`"
    last = "the last of them " if many else ""
    well = all(item.process.status_kind == "exited" and item.process.exit_code == 0 for item in children)
    had = f"had{' all' if many else ''} ended{' with status 0' if well else ''}"
    order = f": {waited} waits for that before {at.here(at.line)} receives" if waited is not None else ""
    return f"{who}{put}, {had}, {last}{time_words(ago_ns)} before{order}"


def _behind(puts: list[LineWords]) -> str:
    return f"behind {list_words([*puts[:_SHOWN]])}" if puts else "before they end"
