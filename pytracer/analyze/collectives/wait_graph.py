"""Which rank waits for which, over all groups and point-to-point operations: where the chains end, and the cycles.

A rank that is in a collective waits for the members that did not call it; a receiver for a sender and a sender for a
receiver. A waiting rank is not the cause: the chain is followed to ranks that wait for no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from pytracer.analyze.collectives.matching import (
    UNFINISHED,
    GroupMatch,
    Matches,
    records_collectives,
    state_of,
)
from pytracer.decode.types.snapshot import Collective, Job, Process

Sent = tuple[int | None, str | None, int | None, int | None]  # rank, group, peer in it, sequence number of a send


class Wait(msgspec.Struct, frozen=True):
    """These ranks wait for those, in one operation. `tags`: sender and receiver named different ones.

    Of a message, where nothing was forgotten: `counts`: which of the waiter's to or from that peer it is, from 1, and
    how many counterparts the peer had called; `other`: the last of these, of different tags the one with this number.
    """

    waiters: tuple[int, ...]
    targets: tuple[int, ...]
    call: Collective
    group: GroupMatch | None
    tags: tuple[int, int] | None = None
    counts: tuple[int, int] | None = None
    other: Collective | None = None


class Unequal(msgspec.Struct, frozen=True):
    """A message whose receiver, which did not complete, expected another number of bytes than were sent."""

    sender: int
    receiver: int
    sent: Collective
    received: Collective


class Waiting(msgspec.Struct, frozen=True):
    """All waits. `sinks`: awaited ranks that wait for no other; `cycles`: ranks in order of waiting.

    `not_received`: the sends that the backend completed, and whose receivers never began to receive them, or failed.
    `receiving`: those whose receivers had begun to, each with the receiver.
    """

    waits: tuple[Wait, ...] = ()
    unequal: tuple[Unequal, ...] = ()
    sinks: tuple[int, ...] = ()
    cycles: tuple[tuple[int, ...], ...] = ()
    not_received: frozenset[Sent] = frozenset()
    receiving: tuple[tuple[Sent, int], ...] = ()

    def of(self, rank: int) -> list[Wait]:
        """What this rank waits in."""
        return [wait for wait in self.waits if rank in wait.waiters]

    def chain(self, rank: int) -> list[Wait]:
        """From this rank's wait, one wait after the other, to a sink or until the chain repeats."""
        found: list[Wait] = []
        seen: set[int] = set()
        while rank not in seen:
            seen.add(rank)
            wait = next(iter(self.of(rank)), None)
            if wait is None:
                break
            found.append(wait)
            rank = wait.targets[0]
        return found


def find_waiting(job: Job, matches: Matches) -> Waiting:
    """The wait-for graph of a job."""
    messages = _messages(job, matches)
    waits = [*_in_collectives(matches), *_point_to_point(messages)]
    edges: dict[int, set[int]] = {}
    for wait in waits:
        for rank in wait.waiters:
            edges.setdefault(rank, set()).update(wait.targets)
    targets = {rank for wait in waits for rank in wait.targets}
    sinks = tuple(sorted(targets - set(edges)))
    open_sends = [*_not_received(messages)]
    return Waiting(
        tuple(waits),
        tuple(_unequal(messages)),
        sinks,
        tuple(_cycles(edges)),
        frozenset(sent for sent, _, begun in open_sends if not begun),
        tuple((sent, receiver) for sent, receiver, begun in open_sends if begun),
    )


def _in_collectives(matches: Matches) -> Iterable[Wait]:
    for match in matches.groups:
        missing = match.missing()
        if missing is None:
            continue
        number, targets = missing
        waiters = tuple(sorted(rank for rank, calls in match.open.items() if number in calls))
        if waiters:
            yield Wait(waiters, targets, match.open[waiters[0]][number], match)


# ---- point-to-point ----

_GLOO = "gloo"
_Side = tuple[GroupMatch, int, int, str]  # group, rank, peer, "send" | "recv"


class _Messages(msgspec.Struct, frozen=True):
    """The operations of each side, in order."""

    by_rank: dict[int, Process]
    sides: dict[tuple[int, int, int, str], list[Collective]]
    groups: dict[int, GroupMatch]

    def of_peer(self, group: int, rank: int, peer: int, op: str) -> list[Collective]:
        """The other side of what `rank` sent to, or received from, `peer`."""
        return self.sides.get((group, peer, rank, "recv" if op == "send" else "send"), [])


def _messages(job: Job, matches: Matches) -> _Messages:
    by_rank = {process.rank: process for process in job.ranks if process.rank is not None}
    sides: dict[tuple[int, int, int, str], list[Collective]] = {}
    groups: dict[int, GroupMatch] = {}
    of_rank: dict[int, dict[str | None, GroupMatch]] = {}
    for group in matches.groups:
        for rank in group.ranks:
            of_rank.setdefault(rank, {})[group.name] = group
    for rank, process in by_rank.items():
        mine = of_rank.get(rank, {})
        for item in process.snapshot.collectives:
            match = mine.get(item.group)
            if item.point_to_point and match is not None and item.peer is not None and item.peer < len(match.ranks):
                groups[id(match)] = match
                sides.setdefault((id(match), rank, match.ranks[item.peer], item.op), []).append(item)
    return _Messages(by_rank, sides, groups)


def _point_to_point(messages: _Messages) -> Iterable[Wait]:
    """Operations that did not complete, and for which the other side has no counterpart."""
    by_rank = messages.by_rank
    for (group, rank, peer, op), items in messages.sides.items():
        other = by_rank.get(peer)
        if other is None or not records_collectives(other):
            continue
        if peer == rank and all(item.state in ("failed", "completed") for item in items):
            continue  # refused, as gloo does: nobody waited
        theirs = messages.of_peer(group, rank, peer, op)
        hanging = _unmatched(by_rank[rank], other, items, theirs)
        if hanging is not None:
            tagged, last = _tagged(hanging, theirs), theirs[-1] if theirs else None
            tags = (hanging.tag or 0, tagged.tag or 0) if tagged is not None else None
            whole = not (_forgot(by_rank[rank]) or _forgot(other))
            counts = (items.index(hanging) + 1, len(theirs)) if whole else None
            yield Wait((rank,), (peer,), hanging, messages.groups[group], tags, counts, tagged or last)


def _unequal(messages: _Messages) -> Iterable[Unequal]:
    """The first message of each pair of ranks that has another size than its receiver asked for."""
    for (group, receiver, sender, op), items in messages.sides.items():
        sent = {item.sequence_nr: item for item in messages.of_peer(group, receiver, sender, op)}
        for item in items if op == "recv" else ():
            other = sent.get(item.sequence_nr)
            if other is None or item.state not in UNFINISHED or other.tag != item.tag:
                continue
            if other.nbytes and item.nbytes and other.nbytes != item.nbytes:
                yield Unequal(sender, receiver, other, item)
                break


def _not_received(messages: _Messages) -> Iterable[tuple[Sent, int, bool]]:
    """Sends that gloo calls completed: isend() returns before the receiver asks, and may never be asked.

    By the completed receives of that tag, of a receiver that has ended, records all of its calls, and named the sender
    in each. With the receiver, and whether a receive for it was under way there.
    """
    for (group, rank, peer, op), items in messages.sides.items():
        other, own = messages.by_rank.get(peer), messages.by_rank[rank]
        if op != "send" or peer == rank or other is None or not records_collectives(other):
            continue
        calls = other.snapshot.collectives
        from_any = any(item.op.startswith("recv") and item.point_to_point and item.peer is None for item in calls)
        if other.status_kind == "running" or from_any or _forgot(own) or _forgot(other):
            continue
        theirs = messages.of_peer(group, rank, peer, op)
        received = Counter(item.tag for item in theirs if state_of(other, item) not in UNFINISHED)
        begun = Counter(item.tag for item in theirs if state_of(other, item) != "failed")
        seen: Counter[int | None] = Counter()
        for item in items:
            seen[item.tag] += 1
            done = item.backend == _GLOO and state_of(own, item) == "completed"
            if done and seen[item.tag] > received[item.tag]:
                sent = rank, item.group, item.peer, item.sequence_nr
                yield sent, peer, seen[item.tag] <= begun[item.tag]


def _unmatched(own: Process, other: Process, items: list[Collective], theirs: list[Collective]) -> Collective | None:
    """The first operation that hangs, unless the other side called its counterpart."""
    complete = not (_forgot(own) or _forgot(other))
    by_tag = Counter(item.tag for item in theirs)
    called = max((item.sequence_nr for item in theirs), default=0)
    seen: Counter[int | None] = Counter()
    for item in items:
        seen[item.tag] += 1
        if state_of(own, item) not in UNFINISHED:
            continue
        if (seen[item.tag] > by_tag[item.tag]) if complete else (item.sequence_nr > called):
            return item
    return None


def _forgot(process: Process) -> bool:
    """Whether the ring has overwritten the beginning."""
    return bool(process.snapshot.collectives) and process.snapshot.collectives[0].number != 1


def _tagged(item: Collective, theirs: list[Collective]) -> Collective | None:
    """The counterpart by number, where it carries another tag."""
    other = next((call for call in theirs if call.sequence_nr == item.sequence_nr), None)
    if other is None or other.tag is None or item.tag is None or other.tag == item.tag:
        return None
    return other


def _cycles(edges: dict[int, set[int]]) -> Iterable[tuple[int, ...]]:
    """One cycle per knot, beginning with its smallest rank; ranks already on a printed one are not printed again."""
    done: set[int] = set()
    for start in sorted(edges):
        path: list[int] = []
        rank = start
        while rank not in done and rank not in path and rank in edges:
            path.append(rank)
            rank = min(edges[rank], key=lambda other: (other not in edges, other))
        if rank in path:
            cycle = path[path.index(rank) :]
            first = cycle.index(min(cycle))
            yield (*cycle[first:], *cycle[:first])
        done.update(path)
