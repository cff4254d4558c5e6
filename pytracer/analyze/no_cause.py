"""The verdict of a job in which no death is the cause: nothing died, or only helpers whose parents went on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pytracer._text import count_words
from pytracer.analyze.deaths.ending import orderly_end
from pytracer.analyze.deaths.order import ended_well
from pytracer.analyze.evidence.ends.ended_by_others import (
    EndedByOther,
    advice_of,
    ended_by_others,
    evidence_of,
    words_of,
)
from pytracer.analyze.evidence.phrases import error_at_words
from pytracer.analyze.naming import subject_words
from pytracer.analyze.platform.signals import SIGKILL
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report import job as r

_NOTHING_ELSE = "nothing else that was recorded failed."


def no_cause(job: JobView) -> r.Verdict:
    """Class `clean`, or `unknown` where deaths contradict each other or nothing was recorded."""
    if job.deaths:  # every death was judged a consequence of another one: a contradiction, so conclude nothing more
        return r.Verdict(
            class_="unknown",
            confidence="unknown",
            summary=f"{count_words(len(job.deaths), 'process')} died; none of the deaths can be named as the first.",
            advice="Look at each process with --all.",
            evidence=[],
        )
    if not job.views:
        return r.Verdict(
            class_="unknown", confidence="unknown", summary="No process was recorded.", advice="See `pytracer doctor`."
        )
    others = ended_by_others(job)
    if others:
        return _ended_by_others(job, others)
    summary = _killed(job.views) or _raised(job.views) or _nothing(job.views)
    return r.Verdict(class_="clean", confidence="certain", summary=summary, evidence=[])


def _ended_by_others(job: JobView, others: Sequence[EndedByOther]) -> r.Verdict:
    evidence = evidence_of(others)
    return r.Verdict(
        class_="clean",
        confidence="certain",
        summary=f"{words_of(job, others)}; its parent went on, and {_NOTHING_ELSE}",
        advice=advice_of(others),
        evidence=[item.sentence for item in evidence],
        facts=[item.fact for item in evidence],
    )


def _nothing(views: Sequence[ProcessView]) -> str:
    running = sum(item.process.status_kind == "running" for item in views)
    recorded = f"{len(views)} process{'es' * (len(views) != 1)}"
    if running:
        return f"Nothing has died so far: {running} of {recorded} still running."
    ends = Counter(name for item in views if (name := orderly_end(item)) is not None)
    orderly = "".join(f", {count} of them ended by {name}(), as its framework does" for name, count in ends.items())
    return f"Nothing died: {recorded} recorded{orderly}."


def _killed(views: Sequence[ProcessView]) -> str | None:
    """Helpers are dismissed by SIGTERM; SIGKILL is worth a word."""
    killed = [item for item in views if item.process.signal == SIGKILL]
    if not killed:
        return None
    more = f" and {len(killed) - 1} more" if killed[1:] else ""
    return f"{subject_words(killed[:1])}{more} {'were' if more else 'was'} ended by SIGKILL; {_NOTHING_ELSE}"


def _raised(views: Sequence[ProcessView]) -> str | None:
    """Children that an uncaught exception ended, and whose parents went on."""
    raised = [item for item in views if item.raised and not ended_well(item)]
    if not raised or raised[0].exception is None:
        return None
    words = error_at_words(raised[0].exception)
    more = f"; {len(raised) - 1} more raised as well" if raised[1:] else ""
    return f"{subject_words(raised[:1])} raised {words}{more}; its parent went on, and {_NOTHING_ELSE}"
