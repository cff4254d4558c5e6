"""A rank whose backward() left out a parameter: DDP waits for its gradient, reduces nothing, and the rank goes on.

DistributedDataParallel reduces a bucket when all its parameters have a gradient. Without find_unused_parameters=True,
a parameter that the loss of one rank's batch does not depend on leaves its bucket, and those behind it, unreduced on
that rank alone, silently: its next collective meets the reduction of the others. DDP raises for it in the next forward.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._text import count_words, list_words
from pytracer.analyze.collectives.absent_gradients import stale_gradients
from pytracer.analyze.collectives.call_sites import calls_by_site, site_of
from pytracer.analyze.collectives.ddp_settings import is_of_ddp
from pytracer.analyze.collectives.matching import GroupMatch
from pytracer.analyze.collectives.ways import Side
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.journal import Buckets, Module
from pytracer.decode.types.records import Node

_SHOWN = 3
_ACCUMULATES = "AccumulateGrad"


class UnreducedGradients(msgspec.Struct, frozen=True):
    """`made` of `count` parameters had a gradient on the rank; `names`: the others, where they are known."""

    rank: str
    made: int
    count: int
    names: Sequence[str]
    file: str

    @property
    def subject(self) -> str:
        """`backward() of rank 0 made gradients of 24 of DDP's 25 parameters (not head.weight), ...`."""
        without = f" (not of {list_words(self.names, _SHOWN)})" if self.names else ""
        return (
            f"the last backward() of {self.rank} made gradients of {self.made} of DDP's {self.count} parameters"
            f"{without}, so DDP did not complete their reduction there, and {self.rank} went on"
        )

    @property
    def advice(self) -> str:
        """What makes all ranks reduce alike."""
        lacking = list_words(self.names, _SHOWN) if self.names else count_words(self.count - self.made, "parameter")
        return (
            f"See why the loss of {self.rank} did not depend on {lacking} in that step: a branch of the forward or of "
            "the loss that its batch did not take, such as one without targets. Let all parameters take part in the "
            "loss on all ranks, with a neutral input or with `0 * p.sum()` of the unused ones, or pass "
            "find_unused_parameters=True to DistributedDataParallel."
        )


def unreduced_gradients(match: GroupMatch, pair: tuple[Side, Side]) -> UnreducedGradients | None:
    """Where one rank waits in DDP's backward, and the other has come through its own, with fewer gradients."""
    for waits, went in (pair, pair[::-1]):
        site = site_of(waits.call)
        if site is None or site == site_of(went.call) or not is_of_ddp(waits.view, waits.call):
            continue
        if is_of_ddp(went.view, went.call) or not _in_one_round(match, waits, went):
            continue
        count = _parameters(waits.view)
        mine, theirs = _gradients(went, site), _gradients(waits, site)
        if count is None or mine is None or theirs is None or not 0 < mine < theirs <= count:
            continue
        names = stale_gradients(went.view, waits.call)
        known = names if len(names) == count - mine else ()
        return UnreducedGradients(went.name, mine, count, known, site[0] or "")
    return None


def _in_one_round(match: GroupMatch, waits: Side, went: Side) -> bool:
    """Whether each had called from its line once more than the other: the one waits, the other left that call out."""
    mine, theirs = calls_by_site(went.view, match.name), calls_by_site(waits.view, match.name)
    reduces, other = site_of(waits.call), site_of(went.call)
    if mine is None or theirs is None or reduces is None or other is None:
        return False
    return theirs[reduces] - mine[reduces] == 1 and mine[other] - theirs[other] == 1


def _parameters(view: ProcessView) -> int | None:
    """Of the only module of DDP, by its last layout; None where it looks for unused ones itself."""
    snapshot = view.process.snapshot
    modules = {fact.data.module: fact.data for fact in snapshot.recorded(Module)}
    layouts = {fact.data.module: fact.data for fact in snapshot.recorded(Buckets)}
    if len(layouts) != 1:
        return None
    name, layout = next(iter(layouts.items()))
    settings = modules[name].settings if name in modules else {}
    if settings.get("find_unused_parameters") or settings.get("static_graph"):
        return None
    return sum(len(bucket.parameters) for bucket in layout.buckets)


def _gradients(side: Side, site: tuple[str | None, str | None, int | None]) -> int | None:
    """How many its last backward() made; None where that is not all recorded."""
    snapshot, call = side.view.process.snapshot, side.call
    before = [
        item.scheduled_ns or 0
        for item in snapshot.collectives
        if item.sequence_nr < call.sequence_nr and not is_of_ddp(side.view, item)
    ]
    since = max(before, default=0)  # the round's beginning: DDP's own calls are of its backward
    times = [item.mono_ns for item in snapshot.events]
    if not since or min(times, default=since) > since:
        return None
    return sum(
        isinstance(item.data, Node) and item.data.name == _ACCUMULATES and item.mono_ns > since
        for item in snapshot.events
        if item.mono_ns <= (call.scheduled_ns or 0)
    )
