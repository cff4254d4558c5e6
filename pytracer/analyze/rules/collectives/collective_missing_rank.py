"""collective-missing-rank: a rank did not come to a collective that others were in.

What: some ranks of a group called a collective, and a rank whose record is complete did not. It waited for nobody else
itself: it is where to look. When that rank died of a cause of its own, this only tells what its death led to.

Why it happens: a branch that skips the collective on one rank, a rank that is busy (reading data, saving a checkpoint)
for longer than the time-out, a rank that hangs, or one that died.

What to do: look at what the named rank did after its last collective, and compare its branch with that of the others.

How it can be wrong: a rank that skipped an earlier collective of the same kind is one behind from then on; the line
that is named is where it came to light. Ranks without a readable record are unknown, not late.
"""

from __future__ import annotations

from pytracer.analyze.collectives.absent_ranks import Absence, find_absences, last_seen
from pytracer.analyze.collectives.description import at_place, capital, span_words
from pytracer.analyze.deaths.attribution import account, nothing_to_compare, symptom_words
from pytracer.analyze.view import Draft, JobView, Outcome, cannot_decide, draft, not_found

_LISTED = 3


class CollectiveMissingRank:
    """Fires for ranks that others waited for in a collective; not for those that had ended well (uneven-inputs)."""

    id = "collective-missing-rank"
    needs = ("COLLECTIVES", "GROUP")

    def examine(self, job: JobView) -> Outcome:
        """One finding per collective and fate of the absent ranks."""
        absences = [item for item in find_absences(job) if item.fate != "left"]
        if absences:
            return Outcome(tuple(_explain(job, item) for item in absences))
        groups = job.matches.groups
        unknown = sorted({rank for match in groups for rank in match.unknown})
        if unknown:
            return cannot_decide(f"the record of {span_words(unknown)} is missing or damaged: unknown, not late")
        return nothing_to_compare(job) or not_found(
            "no rank waited in a collective for a rank that waited for nobody and had not ended well"
        )


def _explain(job: JobView, item: Absence) -> Draft:
    ranks, match = item.ranks, item.wait.group
    never = "died and never came to" if item.fate == "dead" else "did not come to"
    unknown = match.unknown if match is not None else ()
    found = draft(
        CollectiveMissingRank.id,
        "missing-rank",
        "likely" if unknown else "certain",
        item.views,
        f"{capital(span_words(ranks))} {never} {item.where}, in which {item.waiters}{at_place(item.wait.call)}.",
        [*(last_seen(view) for view in item.views[:_LISTED]), *symptom_words(job)],
        f"Look at what {span_words(ranks)} did after {'its' if len(ranks) == 1 else 'their'} last collective.",
        [f"the collectives of {span_words(unknown)}: no readable record" if unknown else None],
    )
    did = dict.fromkeys(ranks, f"did not come to {item.wait.call.op} #{item.wait.call.sequence_nr}")
    why = f"waited in {item.wait.call.op} #{item.wait.call.sequence_nr} for {span_words(ranks)}"
    return account(job, found, why, did, waited_ns=item.waited_ns, ends=item.fate == "late")
