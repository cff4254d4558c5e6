"""first-death: who died first, and which deaths followed.

What: orders all deaths of the run and tells causes from consequences.

Why it matters: in a job of many ranks one death brings down the rest: peers see a lost connection, torchrun's agent
ends the remaining workers with SIGTERM. torchrun's "root cause" is only the order in which it noticed.

What to do: look at the process that died first; the others are listed with the reason why they followed.

How it can be wrong: the time of a SIGKILL is known only between the last record and the moment the parent noticed;
boxes of different hosts are compared by wall clock. Where times overlap, a set is named and nothing is decided.
"""

from __future__ import annotations

from pytracer._text import time_words
from pytracer.analyze.view import Death, JobView, Outcome, cannot_decide, draft, not_found, subject_words


class FirstDeath:
    """Fires when more than one process died, or a rank among several did."""

    id = "first-death"
    needs = ("status",)

    def examine(self, job: JobView) -> Outcome:
        """One finding that names the first death and its followers."""
        if not job.deaths:
            return not_found("nothing died")
        if len(job.deaths) == 1:
            return not_found("only one process died")
        first = [death for death in job.deaths if death.primary]
        undecided = [death for death in job.deaths if death.primary is None]
        followers = [death for death in job.deaths if death.primary is False]
        if not first and not undecided:
            return not_found("the deaths are consequences of what another finding tells")
        if not first:
            return cannot_decide(f"the deaths of {_names(undecided)} overlap in time")
        summary = f"{subject_words([death.view for death in first])} died first ({first[0].what}{_at(first[0])})"
        ranks = [death for death in followers if death.view.process.role == "rank"]
        if ranks:
            summary += f"; {_names(ranks)} followed"
        return Outcome(
            (
                draft(
                    self.id,
                    "unknown",
                    "likely" if undecided or first[0].nature not in ("fault", "abort", "exception") else "certain",
                    [death.view for death in first],
                    summary + ".",
                    [f"{subject_words([death.view])}: {death.what}{_at(death)}: {death.why}" for death in job.deaths],
                    "Look at the first death; the others are its consequences.",
                    [f"whether the death of {_names(undecided)} is a consequence"] if undecided else [],
                ),
            )
        )


def _at(death: Death) -> str:
    return f" at {time_words(death.late_ns)}" if death.late_ns is not None else ""


def _names(deaths: list[Death]) -> str:
    ranks = [death.view for death in deaths if death.view.process.role == "rank"]
    views = ranks or [death.view for death in deaths]
    words = subject_words(views) if ranks else ", ".join(subject_words([view]) for view in views)
    return words[0].lower() + words[1:] if words.startswith("Rank") else words
