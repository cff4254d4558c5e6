"""The child at the other end of a pipe or queue, which had ended when its parent read from it or wrote to it."""

from __future__ import annotations

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.ends.exit_requests import left_at
from pytracer.analyze.kin import children_of
from pytracer.analyze.naming import name_words
from pytracer.analyze.platform.signals import signal_name
from pytracer.analyze.view import JobView, ProcessView

_ENDED = ("EOFError", "BrokenPipeError", "ConnectionResetError", "ConnectionAbortedError", "ConnectionRefusedError")
_CONNECTION = Pattern(r"/multiprocess(?:ing)?/(connection|queues|managers|pool)\.py$")


def other_end_words(job: JobView, view: ProcessView) -> str:
    """`; its child, process 8 (data.py), had ended with exit status 3 by SystemExit at data.py:4 in work`, or nothing.

    Only where one child alone had ended by then: which of several was at the other end is not known.
    """
    exception = view.exception
    stack = exception.python_stack or [] if exception is not None else []
    if exception is None or exception.type not in _ENDED or not stack or not _CONNECTION.search(stack[0].file or ""):
        return ""
    raised = view.process.exception_mono_ns
    gone = [
        item
        for item in children_of(job, view)
        if (ended := item.process.ended_mono_ns) is not None and raised is not None and ended <= raised
    ]
    if len(gone) != 1:
        return ""
    child = gone[0].process
    number = child.signal
    how = f"died of {signal_name(number)}" if number is not None else f"ended with exit status {child.exit_code}"
    return f"; its child, {name_words(gone)}, had {how}{left_at(gone)}"
