"""The other side of a send or receive: the rank that it names, and the call there that it meets."""

from __future__ import annotations

from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.snapshot import Collective


def peer_of(job: JobView, view: ProcessView, call: Collective) -> ProcessView | None:
    """The rank that a message of `view` goes to or comes from."""
    group = next((item for item in view.process.snapshot.own_groups if item.name == call.group), None)
    if group is None or call.peer is None:
        return None
    rank = group.ranks[call.peer] if group.ranks and call.peer < len(group.ranks) else call.peer
    return next((item for item in job.views if item.process.role == "rank" and item.process.rank == rank), None)


def counterpart(job: JobView, view: ProcessView, call: Collective) -> tuple[ProcessView, Collective] | None:
    """The rank and its send or receive with the same number and tag; None where it is not recorded."""
    peer = peer_of(job, view, call)
    own = next((group.own_rank for group in view.process.snapshot.own_groups if group.name == call.group), None)
    if peer is None or own is None:
        return None
    wanted = (_opposite(call), call.group, own, call.sequence_nr, call.tag)
    for item in peer.process.snapshot.collectives:
        if item.point_to_point and (item.op, item.group, item.peer, item.sequence_nr, item.tag) == wanted:
            return peer, item
    return None


def _opposite(call: Collective) -> str:
    return "recv" if call.op == "send" else "send"
