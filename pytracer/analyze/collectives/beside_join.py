"""A rank that is in join() of DistributedDataParallel while others call collectives that join() does not answer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer.analyze.collectives.call_sites import Site, calls_by_site, calls_of_group, site_of
from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.collectives.matching import GroupMatch
from pytracer.analyze.collectives.own_lines import calls_itself, calls_of_line
from pytracer.analyze.collectives.rounds import site_words
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective


class BesideJoin(msgspec.Struct, frozen=True):
    """`joined`: the rank that had come to the end of the `with` of `line`; `other` called `site` after that."""

    joined: int | None
    other: int | None
    line: LineWords
    site: str

    @property
    def cause(self) -> str:
        """Behind what the two sides called."""
        return (
            f"rank {self.joined} had no more batches and was in join() of {self.line}, which answers what "
            "DistributedDataParallel calls, and no collective beside it"
        )

    @property
    def advice(self) -> str:
        """The change to make."""
        return (
            f"Rank {self.joined} had no more batches: join() of {self.line} answers what DistributedDataParallel "
            f"calls, and not the collective at {self.site}, which rank {self.other} went on to call. Take it out of "
            "the loop, or give all ranks the same number of batches, without join()."
        )


def beside_join(sides: Sequence[tuple[ProcessView, Collective]], match: GroupMatch, before: int) -> BesideJoin | None:
    """A rank in join() of DDP, which answers DDP's collectives, and one that calls others beside them."""
    for (view, call), (other, _) in (sides, sides[::-1]):
        frame = place_of(call)
        if frame is None or not _is_join(view, call):
            continue
        joined, went_on = (calls_by_site(item, match.name, before + 1) for item in (view, other))
        if joined is None or went_on is None:
            continue
        beside = next((site for site in _own_sites(other, match) if joined[site] < went_on[site]), None)
        if beside is not None:
            line = line_in(frame.file, frame.line, frame.file)
            return BesideJoin(view.process.rank, other.process.rank, line, site_words(beside))
    return None


def _own_sites(view: ProcessView, match: GroupMatch) -> list[Site]:
    """Lines of the program that call a collective of torch.distributed themselves."""
    items = calls_of_group(view, match.name)
    found = {site: item for item in items if (site := site_of(item)) is not None}
    return [site for site, item in found.items() if calls_itself(view.process.snapshot, item)]


def _is_join(view: ProcessView, call: Collective) -> bool:
    """Whether its line is a `with` of join(): on the way out that answers, and asks how many ranks are left."""
    frame = place_of(call)
    on_line = calls_of_line(view.process.snapshot, frame) if frame is not None else ()
    return any(called_name(item) in ("join", "Join") for item in on_line)
