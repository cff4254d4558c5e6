"""Two messages between two ranks that one side sends in another order than the other side receives them."""

from __future__ import annotations

import msgspec

from pytracer.analyze.collectives.call_sites import site_of
from pytracer.analyze.collectives.wait_graph import Unequal
from pytracer.analyze.deaths.attribution import views_of
from pytracer.analyze.naming import line_in
from pytracer.analyze.view import JobView


class Crossed(msgspec.Struct, frozen=True):
    """`subject`: for the headline; `advice`: what to change."""

    subject: str
    advice: str


def crossed_message(job: JobView, item: Unequal) -> Crossed | None:
    """Where the sender's next message to that rank, from another line, is of the size and dtype that is received."""
    view = next(iter(views_of(job, [item.sender])), None)
    sent, received = item.sent, item.received
    calls = view.process.snapshot.collectives if view is not None else ()
    later = [
        call
        for call in calls
        if call.point_to_point
        and (call.op, call.group, call.peer, call.tag) == (sent.op, sent.group, sent.peer, sent.tag)
        and call.sequence_nr > sent.sequence_nr
    ]
    after = min(later, key=lambda call: call.sequence_nr, default=None)
    first, here = site_of(sent), site_of(received)
    site = site_of(after) if after is not None else None
    if after is None or site is None or first is None or here is None or site == first:
        return None
    if (after.sizes, after.dtype) != (received.sizes, received.dtype):
        return None
    said = [line_in(file, line, here[0]) for file, _, line in (first, site)]
    where = line_in(here[0], here[2], first[0])
    left_out = f", or see whether rank {item.receiver} left out a receive before" if sent.sequence_nr > 1 else ""
    return Crossed(
        f"what rank {item.receiver} receives there is of the size that rank {item.sender} sends next, at {said[1]}",
        f"Send and receive in one order: rank {item.sender} sends at {said[0]} and then at {said[1]}, and {where} of "
        f"rank {item.receiver} receives the second first. Exchange the two lines on one side{left_out}.",
    )
