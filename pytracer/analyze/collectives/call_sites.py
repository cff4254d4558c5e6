"""From which lines each rank called its collectives: ranks that run the same program call from the same lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from pytracer.analyze.parts import python_frame
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import PythonFrame

Site = tuple[str, str, int]  # file, function, line


def site_of(item: Collective) -> Site | None:
    """The line that called it, outside torch where that is known."""
    frame = item.place
    if frame is None or frame.line is None:
        return None
    return frame.file, frame.function, frame.line


def calls_of_group(view: ProcessView, group: str | None) -> list[Collective]:
    """What a rank called of a process group, as far as it is recorded, without sends and receives."""
    return [item for item in view.process.snapshot.collectives if item.group == group and not item.point_to_point]


def numbered_calls(view: ProcessView, group: str | None) -> dict[int, Collective]:
    """As calls_of_group, by their number."""
    return {item.sequence_nr: item for item in calls_of_group(view, group)}


def calls_by_site(view: ProcessView, group: str | None, before: int | None = None) -> Counter[Site] | None:
    """How often a rank called a collective of a group from each line; None when its record does not go back that far.

    Args:
        view: the rank.
        group: name of the process group.
        before: only calls with smaller sequence numbers.
    """
    items = calls_of_group(view, group)
    if not items or min(item.sequence_nr for item in items) > 1:
        return None
    sites = [site_of(item) for item in items if before is None or item.sequence_nr < before]
    return Counter(site for site in sites if site is not None) if all(sites) else None


def counts_at(call: Collective, views: Sequence[ProcessView]) -> list[int] | None:
    """How often each of some ranks called from the line of a call; None where that is not known of all."""
    site = site_of(call)
    counts = [calls_by_site(view, call.group) for view in views]
    known = [count[site] for count in counts if count is not None and site is not None]
    return known if len(known) == len(views) else None


def stacks_of(view: ProcessView) -> Iterator[Sequence[PythonFrame]]:
    """Of the thread that ended a rank; then of the others, where one of the backend's aborted. Innermost first."""
    yield view.exception_stack if view.raised else view.python_stack or []
    for end in (view.crash, view.process.snapshot.ending) if not view.raised else ():
        for _, frames in end.python_threads if end is not None else ():
            yield [python_frame(frame) for frame in frames]


def differing_sites(first: ProcessView, second: ProcessView, group: str | None, before: int) -> Sequence[Site]:
    """Lines from which one rank called more often than the other before a number, the largest difference first."""
    mine, theirs = calls_by_site(first, group, before), calls_by_site(second, group, before)
    if mine is None or theirs is None:
        return ()
    sites = {site for site in (*mine, *theirs) if mine[site] != theirs[site]}
    return sorted(sites, key=lambda site: (-abs(mine[site] - theirs[site]), site))
