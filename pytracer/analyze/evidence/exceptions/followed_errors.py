"""Errors that other ranks had because of the first one."""

from __future__ import annotations

from pytracer.analyze.view import JobView, ProcessView

_ENDS = frozenset({"SIGTERM", "SIGKILL", "SIGINT", "SIGHUP"})


def followed_errors(job: JobView) -> str:
    """That they followed from it; nothing where the others had none: most are only ended by their launcher."""
    followed = any(
        death.primary is False and death.view.process.role == "rank" and _had_error(death.view) for death in job.deaths
    )
    return " The other ranks' errors followed from it." if followed else ""


def _had_error(view: ProcessView) -> bool:
    """An exception, or a signal that nobody sends to end a process."""
    return view.raised or (view.signal is not None and view.signal.name not in _ENDS)
