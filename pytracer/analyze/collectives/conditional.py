"""Collectives that only some ranks reach: their line never called one on the ranks that are waited for."""

from __future__ import annotations

from pytracer.analyze.collectives.absent_ranks import Absence
from pytracer.analyze.collectives.call_sites import calls_by_site, site_of
from pytracer.analyze.deaths.attribution import views_of
from pytracer.analyze.view import JobView


def is_conditional(job: JobView, item: Absence) -> bool:
    """Whether the absent ranks ended well, not fewer steps behind, and never called a collective from that line."""
    if item.fate != "left" or not item.views or item.wait.group is None:
        return False
    site = site_of(item.wait.call)
    if site is None or same_step(job, item) is False:
        return False
    calls = [calls_by_site(view, item.wait.group.name) for view in item.views]
    return all(count is not None and len(count) > 0 and count[site] == 0 for count in calls)


def same_step(job: JobView, item: Absence) -> bool | None:
    """None where steps were not recorded."""
    waiter = next(iter(views_of(job, item.wait.waiters[:1])), None)
    mine, theirs = item.views[0].step, waiter.step if waiter is not None else None
    return None if mine is None or theirs is None else mine == theirs
