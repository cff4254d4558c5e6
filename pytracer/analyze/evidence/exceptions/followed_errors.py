"""Errors that other ranks had because of the first one."""

from __future__ import annotations

from pytracer.analyze.view import Death, JobView, ProcessView, WhyKind

_ENDS = frozenset({"SIGTERM", "SIGKILL", "SIGINT", "SIGHUP"})


def followed_errors(job: JobView) -> str:
    """That they followed from it; nothing where the others had none: most are only ended by their launcher.

    Nor where one of them may be an error of that rank's own, which only came later.
    """
    later = [item for item in job.deaths if item.primary is False and item.view.process.role == "rank"]
    errors = [item for item in later if _had_error(item.view)]
    return " The other ranks' errors followed from it." if errors and all(map(_followed, errors)) else ""


def _had_error(view: ProcessView) -> bool:
    """An exception, or a signal that nobody sends to end a process."""
    return view.raised or (view.signal is not None and view.signal.name not in _ENDS)


def _followed(death: Death) -> bool:
    """Whether it speaks of the loss of a rank, or is known to come from it: not by the time alone."""
    return death.lost_peer or death.kind is not WhyKind.TEARDOWN
