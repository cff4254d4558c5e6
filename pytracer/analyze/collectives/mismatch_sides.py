"""The two sides of a mismatch: the first rank of each, and its call."""

from __future__ import annotations

from pytracer.analyze.collectives.call_sites import site_of
from pytracer.analyze.collectives.matching import Mismatch
from pytracer.analyze.deaths.attribution import views_of
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Collective

Sides = tuple[tuple[ProcessView, Collective], tuple[ProcessView, Collective]]


def two_sides(job: JobView, found: Mismatch) -> Sides | None:
    """The first rank of each of the first two, with its call."""
    first, second = found.variants[:2]
    views = views_of(job, [first.ranks[0], second.ranks[0]])
    return ((views[0], first.call), (views[1], second.call)) if len(views) > 1 else None


def from_other_lines(found: Mismatch) -> bool:
    """Whether ranks passed other sizes or dtypes because they were at other lines: then they are out of step."""
    sites = [site_of(item.call) for item in found.variants]
    return found.field in ("size", "dtype", "reduce_op") and all(sites) and len(set(sites)) == len(sites)
