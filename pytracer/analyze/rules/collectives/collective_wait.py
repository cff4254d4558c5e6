"""collective-wait: ranks waited for each other over more than one process group.

What: who waited for whom, over all groups (tensor, pipeline, data parallel) and messages. Either the chain of waits
ends at a rank that waits for nobody: that one is to be looked at, not those in between. Or it goes round in a circle.

Why it happens: in a chain, the last rank is late, and ranks of other groups wait behind it. In a circle, ranks use two
groups, or a group and messages, in different orders.

What to do: look at the rank at the end of the chain. In a circle, compare the order of operations on these ranks.

How it can be wrong: only recorded operations are known; a rank may also wait for a file, a lock or the store.
"""

from __future__ import annotations

from dataclasses import replace

from pytracer.analyze.collectives.absent_ranks import wait_words
from pytracer.analyze.collectives.description import capital, span_words
from pytracer.analyze.collectives.wait_graph import Wait
from pytracer.analyze.deaths.attribution import account, nothing_to_compare, symptom_words, views_of, waited_ns
from pytracer.analyze.view import Draft, JobView, Outcome, draft, not_found

_LISTED = 4


class CollectiveWait:
    """Fires for chains of at least two waits that end at one rank, and for circles that are not of messages alone."""

    id = "collective-wait"
    needs = ("COLLECTIVES", "GROUP")

    def examine(self, job: JobView) -> Outcome:
        """One finding per circle; one for the longest chain."""
        drafts = []
        for cycle in job.waiting.cycles:
            waits = [wait for rank in cycle for wait in job.waiting.of(rank)[:1]]
            if not any(wait.call.point_to_point for wait in waits):
                drafts.append(_circle(job, cycle, waits))
        chains = [job.waiting.chain(wait.waiters[0]) for wait in job.waiting.waits]
        longest = max(chains, key=len, default=[])
        if len(longest) > 1 and longest[-1].targets[0] in job.waiting.sinks:
            drafts.append(_chain(job, longest))
        if drafts:
            return Outcome(tuple(drafts))
        return nothing_to_compare(job) or not_found("no rank waited for one that itself waited for another")


def _chain(job: JobView, chain: list[Wait]) -> Draft:
    sinks = [rank for rank in chain[-1].targets if rank in job.waiting.sinks]
    item = draft(
        CollectiveWait.id,
        "missing-rank",
        "likely",
        views_of(job, sinks) or list(job.views[:1]),
        f"The waits end at {span_words(sinks)}: {'; '.join(wait_words(wait) for wait in chain[:_LISTED])}.",
        symptom_words(job),
        f"Look at {span_words(sinks)}; the ranks in between only waited.",
    )
    did = dict.fromkeys(sinks, "kept the others waiting")
    return account(
        job, item, f"waited for {span_words(sinks)}, directly or over others", did, waited_ns=_lasted(job, chain)
    )


def _circle(job: JobView, cycle: tuple[int, ...], waits: list[Wait]) -> Draft:
    item = draft(
        CollectiveWait.id,
        "hang",
        "certain",
        views_of(job, sorted(cycle)) or list(job.views[:1]),
        f"{capital(span_words(cycle))} wait for each other in a cycle: "
        f"{'; '.join(wait_words(wait) for wait in waits[:_LISTED])}.",
        symptom_words(job),
        "Make all ranks use these groups in the same order.",
    )
    return replace(account(job, item, "waited in a cycle", {}, waited_ns=_lasted(job, waits)), undecided=True)


def _lasted(job: JobView, waits: list[Wait]) -> int:
    views = views_of(job, [wait.waiters[0] for wait in waits])
    return max((waited_ns(view, wait.call) for view, wait in zip(views, waits, strict=False)), default=0)
