"""watchdog-abort: the watchdog of a communication backend ended a rank whose collective took too long.

What: SIGABRT on a watchdog thread, or with the watchdog's message. It is a clock that ran out: the rank that it ends is
most often one that waited.

Why it happens: another rank did not enter the collective, or called it with other arguments, or its network failed.

What to do: look at the rank that was missing, at the time when the wait began: the time-out before the abort.

How it can be wrong: the rank itself may be the one that was outside any collective, which is then reported.
"""

from __future__ import annotations

from pytracer._text import time_words
from pytracer.analyze.deaths.attribution import is_watchdog_abort
from pytracer.analyze.naming import introduction, subject_words
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import JobView
from pytracer.report.job import Evidence


class WatchdogAbort:
    """Fires for aborts by a watchdog; accompanies what explains them."""

    id = "watchdog-abort"
    needs = ("crash", "COLLECTIVES")

    def check(self, job: JobView) -> tuple[Judgement[None], ...] | NoFinding:
        """One judgement for all ranks that a watchdog ended."""
        views = tuple(death.view for death in job.deaths if is_watchdog_abort(death.view))
        if not views:
            return not_found("no watchdog of a communication backend ended a process")
        explained = not {view.index for view in views} & {view.index for view in job.suspects}
        return (Judgement("abort", "likely", views, None, accompanies=explained),)

    def describe(self, job: JobView, judgement: Judgement[None]) -> Description:
        """See Rule."""
        views = judgement.views
        waits = [view.last_collective for view in views]
        outside = [
            view for view, last in zip(views, waits, strict=True) if last is not None and last.state == "completed"
        ]
        was = "was" if len(outside) == 1 else "were"
        longest = max((last.waited_ns or 0 for last in waits if last is not None), default=0)
        return Description(
            f"{introduction(views)} {'was' if len(views) == 1 else 'were'} ended by the watchdog of the communication "
            "backend: a collective took too long.",
            [
                Evidence(
                    "collective-state",
                    f"the wait had begun {time_words(longest)} before: search there, not at the abort",
                    duration_ns=longest,
                )
                if longest
                else None,
                Evidence(
                    "rank-state",
                    f"{subject_words(outside)} {was} outside any collective",
                    ranks=[view.process.rank for view in outside if view.process.rank is not None],
                )
                if outside
                else None,
            ],
            "Look for the rank that did not enter the collective.",
        )
