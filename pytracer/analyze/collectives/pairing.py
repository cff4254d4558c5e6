"""Collectives that matched, and should not have: the backend compares sizes, not what a rank meant.

Two ranks that call from the same lines in the same steps, and from some number on from others, were out of step before
a size or a missing call showed it: they added gradients of different micro-batches.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer.analyze.collectives.call_sites import site_of
from pytracer.analyze.collectives.description import at_place, group_words, place_of
from pytracer.analyze.collectives.matching import GroupMatch
from pytracer.analyze.deaths.attribution import views_of
from pytracer.analyze.naming import place_words
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Collective
from pytracer.report.job import Evidence


class _Pair(msgspec.Struct, frozen=True):
    mine: Collective
    theirs: Collective

    @property
    def other_line(self) -> bool:
        mine, theirs = site_of(self.mine), site_of(self.theirs)
        return mine is not None and theirs is not None and mine != theirs

    @property
    def apart(self) -> int | None:
        """By how many steps; None where a step is not known."""
        mine, theirs = self.mine.step, self.theirs.step
        return None if mine is None or theirs is None else mine - theirs


def pairing_evidence(job: JobView, match: GroupMatch | None, ranks: Sequence[int], before: int) -> Evidence | None:
    """The first collective before a number that two ranks called from other lines, or in other steps, than one another.

    None where they differed from the first one on: then they run different programs, or count differently.
    """
    views = views_of(job, ranks[:2])
    if match is None or len(views) < 2:
        return None
    pairs = _pairs(views[0], views[1], match.name, before)
    usual = next((pair.apart for pair in pairs if pair.apart is not None), None)
    odd = [n for n, pair in enumerate(pairs) if pair.other_line or pair.apart not in (None, usual)]
    if not odd or odd[0] == 0:
        return None
    pair, more = pairs[odd[0]], len(odd)
    call = pair.mine
    words = f"{call.op} #{call.sequence_nr} of {group_words(match)} had matched although {_sides(pair, views)}"
    return Evidence(
        "collective-call",
        words + (f"; so had {more - 1} more" if more > 1 else ""),
        ranks=[view.process.rank or 0 for view in views],
        group=match.name,
        op=call.op,
        sequence_nr=call.sequence_nr,
        count=more,
        python=place_of(pair.mine),
    )


def _pairs(mine: ProcessView, theirs: ProcessView, group: str | None, before: int) -> list[_Pair]:
    """What both called alike, in order."""
    numbered = {item.sequence_nr: item for item in _calls(theirs, group, before)}
    found = ((item, numbered.get(item.sequence_nr)) for item in _calls(mine, group, before))
    return [_Pair(item, other) for item, other in found if other is not None and other.op == item.op]


def _calls(view: ProcessView, group: str | None, before: int) -> list[Collective]:
    items = view.process.snapshot.collectives
    return [item for item in items if item.group == group and not item.point_to_point and item.sequence_nr < before]


def _sides(pair: _Pair, views: Sequence[ProcessView]) -> str:
    calls = (pair.mine, pair.theirs)
    first, second = (f"rank {view.process.rank}" for view in views)
    if pair.other_line:
        places = [frame for call in calls if (frame := place_of(call)) is not None]
        return f"{first} called it at {place_words(places[0])} and {second} at {place_words(places[1])}"
    return f"{first} was in step {pair.mine.step} and {second} in step {pair.theirs.step}{at_place(pair.mine)}"
