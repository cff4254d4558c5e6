"""point-to-point-unmatched: a send or receive to which the other side has no counterpart.

What: a message that one rank waited to send or receive, and that the other rank never received or sent; or the two
named different tags. When ranks wait for each other in a circle, the circle is printed.

Why it happens: one side makes one message more, sides disagree on tags, or all ranks first receive (or first send) and
so nobody answers.

What to do: make every send have its receive, in the same order and with the same tag. In a ring, let some ranks send
first, or start both with batch_isend_irecv().

How it can be wrong: receives from any rank are not followed. What a full ring forgot is counted without tags.
"""

from __future__ import annotations

from dataclasses import replace

from pytracer._text import count_words
from pytracer.analyze.collectives.absent_ranks import last_seen, wait_words
from pytracer.analyze.collectives.description import capital, span_words
from pytracer.analyze.collectives.wait_graph import Wait
from pytracer.analyze.deaths.attribution import account, symptom_words, views_of, waited_ns
from pytracer.analyze.view import Draft, JobView, Outcome, draft, not_found

_LISTED = 4


class PointToPointUnmatched:
    """Fires for operations that did not complete and have no counterpart."""

    id = "point-to-point-unmatched"
    needs = ("COLLECTIVES", "GROUP")

    def examine(self, job: JobView) -> Outcome:
        """One finding per circle; else one per pair of ranks."""
        waits = [wait for wait in job.waiting.waits if wait.call.point_to_point]
        circles = [cycle for cycle in job.waiting.cycles if any(wait.waiters[0] in cycle for wait in waits)]
        tagged = {frozenset((wait.waiters[0], wait.targets[0])): wait for wait in waits if wait.tags is not None}
        drafts = [_tags(job, wait) for wait in tagged.values()]
        told = {rank for pair in tagged for rank in pair}
        drafts += [_circle(job, cycle) for cycle in circles if not told.issuperset(cycle)]
        told.update(rank for cycle in circles for rank in cycle)
        drafts += [_pair(job, wait) for wait in waits if wait.waiters[0] not in told]
        if drafts:
            return Outcome(tuple(drafts))
        count = sum(item.point_to_point for process in job.job.ranks for item in process.snapshot.collectives)
        if not count:
            return not_found("no point-to-point operations were recorded")
        return not_found(f"{count_words(count, 'recorded send and receive')}: each that hung has its counterpart")


def _finish(job: JobView, item: Draft, why: str, waits: list[Wait], culprit: int | None = None) -> Draft:
    views = views_of(job, [wait.waiters[0] for wait in waits])
    lasted = max((waited_ns(view, wait.call) for view, wait in zip(views, waits, strict=False)), default=0)
    did = {culprit: "has no counterpart of that message"} if culprit is not None else {}
    return replace(account(job, item, why, did, waited_ns=lasted), undecided=culprit is None)


def _circle(job: JobView, cycle: tuple[int, ...]) -> Draft:
    waits = [wait for rank in cycle for wait in job.waiting.of(rank)[:1]]
    messages_only = all(wait.call.point_to_point for wait in waits)
    way = " -> ".join(str(rank) for rank in (*cycle[:8], *(("...",) if len(cycle) > 8 else ()), cycle[0]))
    item = draft(
        PointToPointUnmatched.id,
        "hang" if messages_only else "collective-mismatch",
        "certain",
        views_of(job, sorted(cycle)),
        f"{capital(span_words(cycle))} wait for each other in a cycle ({way}): "
        f"{'; '.join(wait_words(wait) for wait in waits[:_LISTED])}.",
        symptom_words(job),
        "Let some ranks send before they receive, or start both with batch_isend_irecv()."
        if messages_only
        else "Make every receive have its send, and every collective be called by all ranks, in one order.",
    )
    return _finish(job, item, "waited in a cycle", waits)


def _tags(job: JobView, wait: Wait) -> Draft:
    mine, theirs = wait.tags or (0, 0)
    rank, peer = wait.waiters[0], wait.targets[0]
    sends = wait.call.op == "send"
    sender, receiver = ((rank, mine), (peer, theirs)) if sends else ((peer, theirs), (rank, mine))
    item = draft(
        PointToPointUnmatched.id,
        "collective-mismatch",
        "certain",
        views_of(job, sorted((rank, peer))),
        f"Rank {sender[0]} sends with tag {sender[1]}, and rank {receiver[0]} receives with tag {receiver[1]}: "
        "the messages never meet.",
        [wait_words(other) for other in job.waiting.waits if other.waiters[0] in (rank, peer)] + symptom_words(job),
        "Use the same tag on both sides.",
    )
    return _finish(job, item, f"ranks {min(rank, peer)} and {max(rank, peer)} use different tags", [wait])


def _pair(job: JobView, wait: Wait) -> Draft:
    peer = wait.targets[0]
    never = "never sent" if wait.call.op == "recv" else "never received"
    item = draft(
        PointToPointUnmatched.id,
        "missing-rank",
        "likely",
        views_of(job, [peer]),
        f"{capital(wait_words(wait))}, and rank {peer} {never} that message.",
        [*(last_seen(view) for view in views_of(job, [peer])), *symptom_words(job)],
        f"Look at what rank {peer} did instead; every send needs its receive.",
    )
    return _finish(job, item, f"waited in {wait.call.op} for rank {peer}", [wait], peer)
