"""Children that a signal ended together with a parent that was in a loop which does not end: its workers, at rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytracer.analyze.evidence.ends.ended_while import stood_at
from pytracer.analyze.kin import parent_of
from pytracer.analyze.view import JobView, ProcessView


def went_round(job: JobView, view: ProcessView | None) -> bool:
    """Whether it was in a loop that is known not to end: it takes nothing from its workers there."""
    stood = stood_at(job, view) if view is not None else None
    return stood is not None and stood.confidence == "likely"


def ended_with(job: JobView, view: ProcessView, others: Sequence[ProcessView]) -> Iterator[ProcessView]:
    """Those of the others that are children of such a process."""
    if went_round(job, view):
        yield from (item for item in others if parent_of(job, item) is view)
