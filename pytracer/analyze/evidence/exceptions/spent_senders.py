"""A process that asked another one for the descriptor of a tensor, while that one had no descriptor left to send it.

A tensor in shared memory goes to another process as a file descriptor. The sender's thread `_serve` of
multiprocessing.resource_sharer needs one for the connection: without, it closes the connection, and the receiver gets
an EOFError. The sender records its own OSError, with the limit and what its descriptors are.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.deaths.lost_connection import SHARER, through_sharer
from pytracer.analyze.evidence.limits.numbers import recorded_numbers
from pytracer.analyze.evidence.limits.words import limit_reason
from pytracer.analyze.evidence.phrases import error_words
from pytracer.analyze.kin import others_of_machine
from pytracer.analyze.naming import name_words
from pytracer.analyze.parts import exception_report
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.journal import UncaughtException
from pytracer.report.job import Evidence, ExceptionReport, PythonFrame

_LOST = ("EOFError", "ConnectionResetError", "BrokenPipeError")
_FILES = Pattern(r"Too many open files")
_STRATEGY = " torch.multiprocessing.set_sharing_strategy() does not help: these are no tensors."
_BEFORE_NS, _AFTER_NS = 5_000_000_000, 2_000_000_000  # it records that while the receiver already ends


class SpentSender(msgspec.Struct, frozen=True):
    """`report`: the error of its thread."""

    view: ProcessView
    report: ExceptionReport
    subject: str
    advice: str
    line: PythonFrame | None

    @property
    def evidence(self) -> Evidence:
        """The exception of the sender's thread, which did not end that process."""
        return Evidence(
            "thread-exception",
            f"a thread of {name_words([self.view])} that sends file descriptors raised {error_words(self.report)}",
            pid=self.view.process.snapshot.pid,
            rank=self.view.process.rank,
            exception=self.report.type,
            text=self.report.message,
        )


def spent_sender(job: JobView, view: ProcessView) -> SpentSender | None:
    """None where nobody on its host recorded such an error at that time: the sender may have ended, or been killed."""
    exception, raised = view.exception, view.process.exception_mono_ns
    if exception is None or raised is None or exception.type not in _LOST:
        return None
    if not through_sharer(view.exception_stack):
        return None
    for sender in others_of_machine(job, view):
        errors = [*_errors(sender, raised)]
        served = [item for item in errors if _serves(item)]
        if not served:
            continue
        most = max(errors, key=_open_files)
        limit = limit_reason(
            sender.process.snapshot, most, most.python_stack or [], around=view.exception_stack_of_program
        )
        if limit is not None:
            return SpentSender(
                sender,
                served[-1],
                f"{name_words([sender])} had no file descriptor left to send a tensor: {limit.subject}",
                f"{limit.advice}{_STRATEGY if limit.line is not None else ''}",
                limit.line,
            )
    return None


def _errors(sender: ProcessView, raised_ns: int) -> Iterator[ExceptionReport]:
    """That descriptors ran out, as it recorded them itself around that time; those before for what was open."""
    snapshot = sender.process.snapshot
    for fact in snapshot.recorded(UncaughtException):
        if fact.mono_ns < snapshot.created_mono_ns or fact.mono_ns > raised_ns + _AFTER_NS:
            continue  # its parent's, before the fork; or later
        if fact.mono_ns >= raised_ns - _BEFORE_NS and _FILES.search(fact.data.message or ""):
            yield exception_report(fact.data)


def _open_files(report: ExceptionReport) -> int:
    """How many of the most frequent kind were open."""
    numbers = recorded_numbers(report.variables)
    return numbers.files[0] if numbers is not None and numbers.files is not None else 0


def _serves(report: ExceptionReport) -> bool:
    """Whether the thread that sends descriptors raised it, where torch or a queue asked for one."""
    stack = report.python_stack or []
    return any((frame.file or "").endswith(SHARER) and (frame.function or "").endswith("_serve") for frame in stack)
