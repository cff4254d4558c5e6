"""Processes that waited for the same, at the same line: actors that one parent started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytracer._text import list_words
from pytracer.analyze.evidence.waits.wait_chain import at_words
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.wait_words import wait_words
from pytracer.analyze.evidence.waits.waits import wait_of
from pytracer.analyze.naming import name_words
from pytracer.analyze.view import JobView, ProcessView
from pytracer.report.job import Evidence

_NAMED = 3


def waits_evidence(
    job: JobView,
    waiting: Sequence[tuple[ProcessView, ProcessWait]],
    last: tuple[ProcessView, ProcessWait] | None = None,
) -> Iterator[Evidence]:
    """What each process of a chain waited for, and who waited like it; of the last one only the latter is new."""
    told = {view.index for view, _ in (*waiting, *((last,) if last is not None else ()))}
    for view, wait in waiting:
        others = _alike(job, view, wait, told)
        as_well = f", and so did {_names(others)}" if others else ""
        yield Evidence(
            "rank-state",
            f"{name_words([view])} {wait_words(view, wait)}{at_words(wait)}{as_well}",
            pid=view.process.snapshot.pid,
            rank=view.process.rank,
            state=wait.kind,
            python=wait.at,
        )
    if last is None:
        return
    view, wait = last
    others = _alike(job, view, wait, told)
    if others:
        first = others[0].process
        yield Evidence(
            "rank-state",
            f"{_names(others)} waited so as well{at_words(wait)}",
            pid=first.snapshot.pid,
            rank=first.rank,
            state=wait.kind,
            python=wait.at,
        )


def _names(views: Sequence[ProcessView]) -> str:
    """`Process-1 (pid 8), Process-2 (pid 9), Process-3 (pid 10) and 4 more`."""
    return list_words([name_words([view]) for view in views], _NAMED)


def _alike(job: JobView, view: ProcessView, wait: ProcessWait, told: set[int]) -> list[ProcessView]:
    """Other children of its parent with that wait; without a line, only a wait at the end says that it is the same."""
    if wait.at is None and wait.kind != "unread-queue":
        return []
    own = view.process.snapshot
    beside = (
        item
        for item in job.views
        if item.index not in told and (item.process.snapshot.ppid, item.process.snapshot.host) == (own.ppid, own.host)
    )
    return [
        item for item in beside if (its := wait_of(item)) is not None and (its.kind, its.at) == (wait.kind, wait.at)
    ]
