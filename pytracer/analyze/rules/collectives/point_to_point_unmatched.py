"""point-to-point-unmatched: a send or receive to which the other side has no counterpart.

What: a message that one rank waited to send or receive, and that the other rank never received or sent; or the two
named different tags, or sizes. When ranks wait for each other in a circle, the circle is printed. A rank may also wait
for a message of itself.

Why it happens: one side makes one message more, sides disagree on tags, or all ranks first receive (or first send), so
that none answers: then the headline names the line of each, and that of the other half which it has not reached, where
the source shows it behind that line. In a circle with a collective, one rank left that out: it stands in a loop over
what each rank fills for itself, which is empty there.

What to do: make every send have its receive, in the same order and with the same tag. In a ring, let some ranks send
first, or start both with batch_isend_irecv().

How it can be wrong: receives from any rank are not followed. What a full ring forgot is counted without tags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from pytracer._text import capital, count_words
from pytracer.analyze.behind import Behind
from pytracer.analyze.collectives.absent_ranks import confidence_of_circle, last_seen, wait_evidence, wait_words
from pytracer.analyze.collectives.crossed_messages import crossed_message
from pytracer.analyze.collectives.description import at_place, call_evidence, span_words
from pytracer.analyze.collectives.empty_loops import EmptyLoop, empty_loop
from pytracer.analyze.collectives.messages import (
    counted_there,
    left_out_advice,
    message_reason,
    never_sent_advice,
    number_advice,
    tag_advice,
    unanswered_advice,
)
from pytracer.analyze.collectives.polled_works import polling
from pytracer.analyze.collectives.same_way import SameWay, same_way
from pytracer.analyze.collectives.unsent_messages import UnsentMessage, unsent_message
from pytracer.analyze.collectives.wait_graph import Unequal, Wait
from pytracer.analyze.collectives.ways import Side, way_to
from pytracer.analyze.deaths.attribution import symptom_evidence, views_of, waited_ns
from pytracer.analyze.rules.account import account
from pytracer.analyze.rules.base import Description, Judgement, NoFinding, not_found
from pytracer.analyze.view import JobView
from pytracer.report.job import VerdictClass

_LISTED = 4
_PAIR = 2


class _Circle(msgspec.Struct, frozen=True):
    """Ranks that wait for each other, and in what."""

    cycle: tuple[int, ...]
    waits: tuple[Wait, ...]

    @property
    def messages_only(self) -> bool:
        """Whether no collective is among the waits."""
        return all(wait.call.point_to_point for wait in self.waits)


class _Tags(msgspec.Struct, frozen=True):
    """A message that waits, because the other side names another tag."""

    wait: Wait


class _Alone(msgspec.Struct, frozen=True):
    """A message that waits, and that the other rank never sent or received."""

    wait: Wait


class _Sizes(msgspec.Struct, frozen=True):
    """A message that has another size than its receiver asked for."""

    unequal: Unequal


_Found = _Circle | _Tags | _Sizes | _Alone


class PointToPointUnmatched:
    """Fires for operations that did not complete and have no counterpart."""

    id = "point-to-point-unmatched"
    needs = ("COLLECTIVES", "GROUP")

    def check(self, job: JobView) -> tuple[Judgement[_Found], ...] | NoFinding:
        """One judgement per circle; else one per pair of ranks."""
        waits = [wait for wait in job.waiting.waits if wait.call.point_to_point]
        circles = [cycle for cycle in job.waiting.cycles if any(wait.waiters[0] in cycle for wait in waits)]
        tagged = {frozenset((wait.waiters[0], wait.targets[0])): wait for wait in waits if wait.tags is not None}
        judgements = [_judge_tags(job, wait) for wait in tagged.values()]
        told = {rank for pair in tagged for rank in pair}
        unequal = [item for item in job.waiting.unequal if not told.intersection((item.sender, item.receiver))]
        judgements += [_judge_sizes(job, item) for item in unequal]
        told.update(rank for item in unequal for rank in (item.sender, item.receiver))
        judgements += [_judge_circle(job, cycle) for cycle in circles if not told.issuperset(cycle)]
        told.update(rank for cycle in circles for rank in cycle)
        told.update(rank for wait in waits for rank in wait.waiters if _polls(job, wait))
        judgements += [_judge_alone(job, wait) for wait in waits if wait.waiters[0] not in told]
        if judgements:
            return tuple(judgements)
        count = sum(item.point_to_point for process in job.job.ranks for item in process.snapshot.collectives)
        if not count:
            return not_found("no point-to-point operations were recorded")
        return not_found(f"{count_words(count, 'recorded send and receive')}: each that hung has its counterpart")

    def describe(self, job: JobView, judgement: Judgement[_Found]) -> Description:
        """See Rule."""
        found = judgement.found
        if isinstance(found, _Circle):
            return _describe_circle(job, found)
        if isinstance(found, _Sizes):
            return _describe_sizes(job, found.unequal)
        return _describe_tags(job, found.wait) if isinstance(found, _Tags) else _describe_alone(job, found.wait)


def _polls(job: JobView, wait: Wait) -> bool:
    """Whether the other rank is in a loop that does not end: that is why it has no counterpart (polled-work)."""
    return any(view.index in polling(job) for view in views_of(job, wait.targets))


def _judge_circle(job: JobView, cycle: tuple[int, ...]) -> Judgement[_Found]:
    found = _Circle(cycle, tuple(wait for rank in cycle for wait in job.waiting.of(rank)[:1]))
    verdict_class: VerdictClass = "hang" if found.messages_only else "collective-mismatch"
    confidence = confidence_of_circle(job, cycle, found.waits)
    judgement = Judgement[_Found](verdict_class, confidence, tuple(views_of(job, sorted(cycle))), found)
    did = dict.fromkeys(cycle, "waited in a cycle")
    return _finish(job, judgement, f"{span_words(cycle)} waited in a cycle", found.waits, did)


def _judge_tags(job: JobView, wait: Wait) -> Judgement[_Found]:
    pair = sorted((wait.waiters[0], wait.targets[0]))
    judgement = Judgement[_Found]("collective-mismatch", "certain", tuple(views_of(job, pair)), _Tags(wait))
    return _finish(job, judgement, f"ranks {pair[0]} and {pair[1]} use different tags", [wait])


def _judge_sizes(job: JobView, item: Unequal) -> Judgement[_Found]:
    views = views_of(job, sorted((item.sender, item.receiver)))
    judgement = Judgement[_Found]("collective-mismatch", "certain", tuple(views), _Sizes(item))
    why = f"rank {item.sender} sent another size than rank {item.receiver} receives"
    return replace(account(job, judgement, why, {}), undecided=True)


def _judge_alone(job: JobView, wait: Wait) -> Judgement[_Found]:
    peer = wait.targets[0]
    judgement = Judgement[_Found]("missing-rank", "likely", tuple(views_of(job, [peer])), _Alone(wait))
    did = {peer: "has no counterpart of that message"}
    return replace(_finish(job, judgement, f"waited in {wait.call.op} for rank {peer}", [wait], did), undecided=False)


def _finish(
    job: JobView, item: Judgement[_Found], why: str, waits: Sequence[Wait], did: Mapping[int, str] | None = None
) -> Judgement[_Found]:
    """`why` is said of all others; `did`: what each culprit did, by rank."""
    views = views_of(job, [wait.waiters[0] for wait in waits])
    lasted = max((waited_ns(view, wait.call) for view, wait in zip(views, waits, strict=False)), default=0)
    return replace(account(job, item, why, did or {}, waited_ns=lasted), undecided=True)


def _describe_circle(job: JobView, found: _Circle) -> Description:
    cycle = found.cycle
    if len(cycle) == 1:
        return Description(
            f"{capital(wait_words(found.waits[0]))}: the peer of that message is the rank itself.",
            symptom_evidence(job),
            "Copy the tensor where the peer is the rank itself, or start both sides with batch_isend_irecv(), which "
            "NCCL allows; or use at least two ranks along that way.",
        )
    alike = _same_way(job, found)
    if alike is not None:
        return Description(
            f"{alike.subject}.", symptom_evidence(job), _circle_advice(job, found), behind=Behind(lines=alike.places)
        )
    way = " -> ".join(str(rank) for rank in (*cycle[:8], *(("...",) if len(cycle) > 8 else ()), cycle[0]))
    said = "; ".join(_with_count(wait) for wait in found.waits[:_LISTED])
    empty = _empty(job, found) or _unsent(job, found)
    why = f"; {empty.subject}" if empty is not None else ""
    return Description(
        f"{capital(span_words(cycle))} wait for each other in a cycle ({way}): {said}{why}.",
        symptom_evidence(job),
        empty.advice if empty is not None else _circle_advice(job, found),
        behind=Behind(lines=empty.places) if empty is not None else None,
    )


def _sides(job: JobView, found: _Circle) -> tuple[Side, Side] | None:
    """Of two ranks, the one in a collective, and the other one in a message."""
    pairs = [(view, wait.call) for wait in found.waits for view in views_of(job, wait.waiters[:1])]
    if len(pairs) != _PAIR or pairs[0][1].point_to_point == pairs[1][1].point_to_point:
        return None
    there, absent = sorted(pairs, key=lambda pair: pair[1].point_to_point)
    return Side(there[0], way_to(*there), there[1]), Side(absent[0], way_to(*absent), absent[1])


def _empty(job: JobView, found: _Circle) -> EmptyLoop | None:
    sides = _sides(job, found)
    return empty_loop(*sides) if sides is not None else None


def _unsent(job: JobView, found: _Circle) -> UnsentMessage | None:
    """Why the sender of a message that the circle waits for left it out."""
    messages = (wait for wait in found.waits if wait.call.point_to_point)
    return next((unsent for wait in messages if (unsent := unsent_message(job, wait)) is not None), None)


def _same_way(job: JobView, found: _Circle) -> SameWay | None:
    """Unless one of them left out a message: then the numbers of messages are the reason."""
    if unanswered_advice(job, found.waits) or never_sent_advice(found.waits):
        return None
    return same_way(job, found.cycle, found.waits)


def _with_count(wait: Wait) -> str:
    """A message without counterpart, with the number that each side had called."""
    said = counted_there(wait) if wait.call.point_to_point else None
    return f"{wait_words(wait)}{f': {said}' if said is not None else ''}"


def _count(wait: Wait) -> str:
    said = counted_there(wait)
    return f" ({said})" if said is not None else ""


def _circle_advice(job: JobView, found: _Circle) -> str:
    if found.messages_only:
        answered = unanswered_advice(job, found.waits) or never_sent_advice(found.waits)
        return answered if answered is not None else _messages_advice([wait.call.op for wait in found.waits])
    messages = [wait for wait in found.waits if wait.call.point_to_point]
    sides = _sides(job, found)
    either = (
        left_out_advice(*sides, messages[0]) if sides is not None and not message_reason(job, messages[0]) else None
    )
    if either is not None:
        return either
    return next(
        (words for wait in messages if (words := number_advice(job, wait)) is not None),
        "Make every receive have its send, and every collective be called by all ranks, in one order.",
    )


def _messages_advice(ops: Sequence[str]) -> str:
    """By what all of them do: a message needs a receiver that is there, and one that was sent."""
    if all(op == "send" for op in ops):
        return (
            "All of them send, and none receives: send() waits for its receiver. Let "
            "one of two neighbours receive first, or use isend() or batch_isend_irecv() for both ways."
        )
    if all(op == "recv" for op in ops):
        return (
            "All of them receive, and none sends: let some ranks send before they receive, or start both with "
            "batch_isend_irecv(). If they took turns before, one of them left a message out (a `continue`, a caught "
            "error): compare the numbers of their messages."
        )
    return "Let some ranks send before they receive, or start both with batch_isend_irecv()."


def _describe_tags(job: JobView, wait: Wait) -> Description:
    mine, theirs = wait.tags or (0, 0)
    rank, peer = wait.waiters[0], wait.targets[0]
    sends = wait.call.op == "send"
    own, other = (rank, mine, wait.call), (peer, theirs, wait.other)
    sender, receiver = (own, other) if sends else (other, own)
    places = [at_place(call) if call is not None else "" for _, _, call in (sender, receiver)]
    return Description(
        f"Rank {sender[0]} sends with tag {sender[1]}{places[0]}, and rank {receiver[0]} receives with tag "
        f"{receiver[1]}{places[1]}: the messages never meet.",
        [wait_evidence(other) for other in job.waiting.waits if other.waiters[0] in (rank, peer)]
        + symptom_evidence(job),
        tag_advice(job, wait),
    )


_AGREE_ON_SIZE = (
    "Make both sides agree on shape and dtype: compare the configurations that the sizes come from, or send the shape "
    "first and receive into a tensor of that shape."
)


def _describe_sizes(job: JobView, item: Unequal) -> Description:
    sides = ((item.sender, "sent", item.sent), (item.receiver, "receives", item.received))
    words = [
        f"rank {rank} {verb} {count_words(call.numel or 0, 'element')} {list(call.sizes)} of {call.dtype}"
        f"{at_place(call)}"
        for rank, verb, call in sides
    ]
    crossed = crossed_message(job, item)
    why = f"; {crossed.subject}" if crossed is not None else ""
    return Description(
        f"Ranks disagree in the size of a message: {'; '.join(words)}{why}.",
        [
            *(call_evidence(rank, call, None) for rank, _, call in sides),
            *symptom_evidence(job),
        ],
        crossed.advice if crossed is not None else _AGREE_ON_SIZE,
        ["a third rank: which of the two is wrong is undecidable from what they passed"],
    )


def _describe_alone(job: JobView, wait: Wait) -> Description:
    peer = wait.targets[0]
    never = "never sent" if wait.call.op == "recv" else "never received"
    unsent = unsent_message(job, wait)
    why = f"; {unsent.subject}" if unsent is not None else ""
    return Description(
        f"{capital(wait_words(wait))}, and rank {peer} {never} that message{_count(wait)}{why}.",
        [*(last_seen(view) for view in views_of(job, [peer])), *symptom_evidence(job)],
        (unsent.advice if unsent is not None else number_advice(job, wait))
        or f"Look at what rank {peer} did instead; every send needs its receive.",
    )
