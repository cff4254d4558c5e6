"""A rank that is in join() of DistributedDataParallel while others call collectives that join() does not answer."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer.analyze.collectives.call_sites import Site, calls_by_site, calls_of_group, site_of
from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.collectives.library_calls import is_of_ddp
from pytracer.analyze.collectives.matching import GroupMatch
from pytracer.analyze.collectives.own_lines import calls_itself, calls_of_line
from pytracer.analyze.collectives.rounds import site_words
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Collective


def beside_join(sides: Sequence[tuple[ProcessView, Collective]], match: GroupMatch, before: int) -> str | None:
    """A rank in join() of DDP, which answers DDP's collectives, and one that calls others beside them."""
    for (view, call), (other, _) in (sides, sides[::-1]):
        frame = place_of(call)
        if frame is None or not is_of_ddp(call) or not _is_join(view, call):
            continue
        joined, went_on = (calls_by_site(item, match.name, before) for item in (view, other))
        for site in _own_sites(other, match) if joined is not None and went_on is not None else ():
            if joined is not None and went_on is not None and joined[site] < went_on[site]:
                return (
                    f"Rank {view.process.rank} had no more batches: join() of line {frame.line} answers what "
                    f"DistributedDataParallel calls, and not the collective at {site_words(site)}, which rank "
                    f"{other.process.rank} went on to call. Take it out of the loop, or give all ranks the same number "
                    "of batches, without join()."
                )
    return None


def _own_sites(view: ProcessView, match: GroupMatch) -> list[Site]:
    """Lines of the program that call a collective of torch.distributed themselves."""
    items = calls_of_group(view, match.name)
    found = {site: item for item in items if (site := site_of(item)) is not None}
    return [site for site, item in found.items() if calls_itself(view.process.snapshot, item)]


def _is_join(view: ProcessView, call: Collective) -> bool:
    """Whether its line is a `with` of join(), which answers on the way out."""
    frame = place_of(call)
    on_line = calls_of_line(view.process.snapshot, frame) if frame is not None else ()
    return any(called_name(item) in ("join", "Join") for item in on_line)
