"""guard-damage: bytes beside a guarded storage had been written.

What: guard mode keeps known bytes in what a storage leaves free of its pages. When the storage was freed, or when the
process ended, some of them had changed: something wrote there in between. Nothing faulted, and nothing need have died.

Why it happens: as in out-of-bounds. The end of a storage lies against the guard page only when its size is a multiple
of the alignment; a write into the up to 63 bytes between them, or far before the storage, is not stopped.

What to do: run it again with `--guard=all,align:4`, or `side:underrun` for bytes before the storage: the write then
faults where it happens. Compare the sizes that native code assumes with those of the storage.

How it can be wrong: who wrote is not known, only between which two moments. Code that was given a larger buffer on
purpose and knows torch's padding is not known to exist.
"""

from __future__ import annotations

from pytracer._text import count_words, size_words
from pytracer.analyze.evidence.phrases import allocation_evidence, free_evidence
from pytracer.analyze.naming import introduction, place_words
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import JobView
from pytracer.report import job as r
from pytracer.report.job import Evidence

_LISTED = 3


class GuardDamage:
    """Fires for every process in which canaries had changed."""

    id = "guard-damage"
    needs = ("GUARD",)

    def check(self, job: JobView) -> tuple[Judgement[None], ...] | NoFinding:
        """One judgement per process; a verdict only when nothing died."""
        damaged = [view for view in job.views if view.guard and view.guard.damaged]
        if damaged:
            died = bool(job.deaths)
            return tuple(Judgement("out-of-bounds", "certain", (view,), None, accompanies=died) for view in damaged)
        if any(view.guard for view in job.views):
            return not_found("the bytes beside every guarded storage that was looked at were as they should be")
        return not_found("guard mode was off")

    def describe(self, job: JobView, judgement: Judgement[None]) -> Description:
        """See Rule."""
        view = judgement.views[0]
        found = (view.guard.damaged if view.guard else None) or []
        first = found[0]
        place = first.allocated and first.allocated.place
        whose = f", allocated at {place_words(place)}" if place else ""
        underrun = first.side == "before"
        return Description(
            f"{introduction(judgement.views)} wrote {'before' if underrun else 'past the end of'} a storage of "
            f"{size_words(first.nbytes or 0)}{whose}; nothing faulted, and the data may be corrupt.",
            [line for item in found[:_LISTED] for line in _lines(item) if line]
            + [_more(len(found) - _LISTED)] * (len(found) > _LISTED),
            "Run it again with --guard=all,side:underrun: the write then faults where it happens."
            if underrun
            else "Run it again with --guard=all,align:4: the write then faults where it happens.",
            ["the line that wrote: it ran between these two moments"],
        )


def _more(count: int) -> Evidence:
    return Evidence("guard", f"... and {count_words(count, 'more storage')}", count=count)


def _lines(item: r.GuardDamage) -> list[Evidence | None]:
    offset, nbytes = item.offset_bytes or 0, item.nbytes or 0
    behind = f"{count_words(offset - nbytes, 'byte')} past the end of" if offset > nbytes else "right past the end of"
    where = f"{count_words(-offset, 'byte')} before" if offset < 0 else behind
    count = item.changed_bytes or 0
    cut = " ..." if count * 2 > len(item.content or "") else ""
    moment = "freed" if item.freed else "last looked at, at the end"
    what = f"{count_words(count, 'byte')}, the first one {where} the storage of {size_words(nbytes)} at {item.base}"
    return [
        Evidence(
            "guard",
            f"guard mode: {what}, had become {item.content}{cut} when it was {moment}",
            base=item.base,
            nbytes=nbytes,
            offset_bytes=offset,
            count=count,
            text=item.content,
            state="freed" if item.freed else "live",
        ),
        allocation_evidence(item),
        free_evidence(item),
    ]
