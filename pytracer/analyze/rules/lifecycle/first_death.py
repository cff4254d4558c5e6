"""first-death: who died first, and which deaths followed.

What: orders all deaths of the run and distinguishes causes from consequences.

Why it matters: in a job of many ranks one death brings down the rest: peers see a lost connection, torchrun's agent
ends the remaining workers with SIGTERM. torchrun's "root cause" is only the order in which it noticed.

A parent that raised, and ended its children by a signal on the way (`finally`, `with`, mp.spawn), is first; one that
ended a child and then raised in a line behind is not.

What to do: look at the process that died first; the others are listed with the reason why they followed.

How it can be wrong: the time of a SIGKILL is known only between the last record and the moment the parent noticed;
recordings of different hosts are compared by wall clock. Where times overlap, a set is named and nothing is decided.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._text import time_words
from pytracer.analyze.naming import introduction, name_words, subject_words
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, cannot_decide, not_found
from pytracer.analyze.view import Death, JobView
from pytracer.report.job import Evidence


class _Order(msgspec.Struct, frozen=True):
    """The deaths as they were judged: all of them, and by what they are."""

    deaths: tuple[Death, ...]
    first: tuple[Death, ...]
    undecided: tuple[Death, ...]
    followers: tuple[Death, ...]


class FirstDeath:
    """Fires when more than one process died, or a rank among several did."""

    id = "first-death"
    needs = ("status",)

    def check(self, job: JobView) -> tuple[Judgement[_Order], ...] | NoFinding:
        """One judgement, about those that died first."""
        if not job.deaths:
            return not_found("nothing died")
        if len(job.deaths) == 1:
            return not_found("only one process died")
        order = _Order(
            job.deaths,
            first=tuple(death for death in job.deaths if death.primary),
            undecided=tuple(death for death in job.deaths if death.primary is None),
            followers=tuple(death for death in job.deaths if death.primary is False),
        )
        if not order.first and not order.undecided:
            return not_found("the deaths are consequences of what another finding tells")
        if not order.first:
            return cannot_decide(f"the deaths of {_names(order.undecided)} overlap in time")
        own = order.first[0].nature in ("fault", "abort", "exception") and not order.undecided
        views = tuple(death.view for death in order.first)
        return (Judgement("unknown", "certain" if own else "likely", views, order),)

    def describe(self, job: JobView, judgement: Judgement[_Order]) -> Description:
        """See Rule."""
        order = judgement.found
        first, undecided = order.first[0], order.undecided
        ranks = [death for death in order.followers if death.view.process.role == "rank"]
        followed = f"; {_names(ranks)} followed" if ranks else ""
        return Description(
            f"{introduction(judgement.views)} died first ({first.what}{_at(first)}){followed}.",
            [_evidence(death) for death in order.deaths],
            "Look at the first death; the others are its consequences.",
            [f"whether the death of {_names(undecided)} is a consequence"] if undecided else [],
        )


def _evidence(death: Death) -> Evidence:
    process = death.view.process
    return Evidence(
        "death",
        f"{subject_words([death.view])}: {death.what}{_at(death)}: {death.why}",
        rank=process.rank,
        pid=process.snapshot.pid,
        host=process.snapshot.host,
        time=death.late_ns,
        state=death.kind.value if death.kind else None,
        text=death.what,
    )


def _at(death: Death) -> str:
    return f" at {time_words(death.late_ns)}" if death.late_ns is not None else ""


def _names(deaths: Sequence[Death]) -> str:
    ranks = [death.view for death in deaths if death.view.process.role == "rank"]
    return name_words(ranks) if ranks else ", ".join(subject_words([death.view]) for death in deaths)
