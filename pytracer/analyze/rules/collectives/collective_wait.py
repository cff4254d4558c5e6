"""collective-wait: ranks waited for each other over more than one process group.

What: who waited for whom, over all groups (tensor, pipeline, data parallel) and messages. Either the chain of waits
ends at a rank that waits for none: that one is to be examined, not those in between. Or it is a circle.

Why it happens: in a chain, the last rank is late, and ranks of other groups wait behind it. In a circle, ranks use two
groups, or a group and messages, in different orders; or one left out a call of one group, by a condition over its data,
and waits in the next one for the other.

What to do: look at the rank at the end of the chain. In a circle, let all ranks make the calls that a condition decides
about, where one is named; else compare the order of operations on these ranks.

How it can be wrong: only recorded operations are known; a rank may also wait for a file, a lock or the store. Of a job
that still runs, a circle is likely when all of them have waited for ten seconds, else possible.
"""

from __future__ import annotations

import msgspec

from pytracer._text import capital
from pytracer.analyze.collectives.absent_ranks import confidence_of_circle, wait_words
from pytracer.analyze.collectives.cycle_causes import cycle_cause
from pytracer.analyze.collectives.description import span_words
from pytracer.analyze.collectives.wait_graph import Wait
from pytracer.analyze.deaths.attribution import symptom_evidence, views_of, waited_ns
from pytracer.analyze.rules.account import account, nothing_to_compare
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import JobView

_LISTED = 4


class _Waits(msgspec.Struct, frozen=True):
    """Waits that lead to each other: round the ranks `cycle`, or in a chain to the ranks `sinks`."""

    waits: tuple[Wait, ...]
    cycle: tuple[int, ...] = ()
    sinks: tuple[int, ...] | None = None


class CollectiveWait:
    """Fires for chains of at least two waits that end at one rank, and for circles that are not of messages alone."""

    id = "collective-wait"
    needs = ("COLLECTIVES", "GROUP")

    def check(self, job: JobView) -> tuple[Judgement[_Waits], ...] | NoFinding:
        """One judgement per circle; one for the longest chain."""
        judgements = []
        for cycle in job.waiting.cycles:
            waits = [wait for rank in cycle for wait in job.waiting.of(rank)[:1]]
            if not any(wait.call.point_to_point for wait in waits):
                judgements.append(_circle(job, cycle, waits))
        chains = [job.waiting.chain(wait.waiters[0]) for wait in job.waiting.waits]
        longest = max(chains, key=len, default=[])
        if len(longest) > 1 and longest[-1].targets[0] in job.waiting.sinks:
            judgements.append(_chain(job, longest))
        if judgements:
            return tuple(judgements)
        return nothing_to_compare(job) or not_found("no rank waited for one that itself waited for another")

    def describe(self, job: JobView, judgement: Judgement[_Waits]) -> Description:
        """See Rule."""
        found = judgement.found
        waits = "; ".join(wait_words(wait) for wait in found.waits[:_LISTED])
        if found.sinks is not None:
            sinks = span_words(found.sinks)
            return Description(
                f"The waits end at {sinks}: {waits}.",
                symptom_evidence(job),
                f"Look at {sinks}; the ranks in between only waited.",
            )
        cause = cycle_cause(job, found.waits)
        why = f" {capital(cause.subject)}." if cause.subject is not None else ""
        return Description(
            f"{capital(span_words(found.cycle))} wait for each other in a cycle: {waits}.{why}",
            symptom_evidence(job),
            cause.advice,
        )


def _chain(job: JobView, chain: list[Wait]) -> Judgement[_Waits]:
    sinks = [rank for rank in chain[-1].targets if rank in job.waiting.sinks]
    views = views_of(job, sinks) or list(job.views[:1])
    judgement = Judgement("missing-rank", "likely", tuple(views), _Waits(tuple(chain), sinks=tuple(sinks)))
    why = f"waited for {span_words(sinks)}, directly or over others"
    did = dict.fromkeys(sinks, "kept the others waiting")
    return account(job, judgement, why, did, waited_ns=_lasted(job, chain))


def _circle(job: JobView, cycle: tuple[int, ...], waits: list[Wait]) -> Judgement[_Waits]:
    views = views_of(job, sorted(cycle)) or list(job.views[:1])
    confidence = confidence_of_circle(job, cycle, waits)
    judgement = Judgement("hang", confidence, tuple(views), _Waits(tuple(waits), cycle=cycle), undecided=True)
    return account(job, judgement, "waited in a cycle", {}, waited_ns=_lasted(job, waits))


def _lasted(job: JobView, waits: list[Wait]) -> int:
    views = views_of(job, [wait.waiters[0] for wait in waits])
    return max((waited_ns(view, wait.call) for view, wait in zip(views, waits, strict=False)), default=0)
