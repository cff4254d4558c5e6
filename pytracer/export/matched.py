"""Which calls of the ranks were one collective, and which rank entered it last."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from pytracer.decode.types.snapshot import Collective, Group, Process

Key = tuple[object, ...]


@dataclass(frozen=True)
class Call:
    """One rank's call, from when it entered to when it was done, or to the last that is known of the process."""

    process: Process
    rank: int
    call: Collective
    begin_ns: int
    end_ns: int
    error_ns: int  # how far the clock of its host may be from the run's

    def uncertain_ns(self, other: Call) -> int:
        """How far the order of two calls is unknown: not at all on one host."""
        same = self.process.snapshot.boot_id == other.process.snapshot.boot_id
        return 0 if same else self.error_ns + other.error_ns


@dataclass
class Meeting:
    """The calls that belong together. `members`: all ranks of the group, None when they are unknown."""

    members: tuple[int, ...] | None
    calls: list[Call] = field(default_factory=list)  # in the order of entry

    @cached_property
    def last(self) -> Call | None:
        """The call that entered last, once all calls are in.

        None while a member has not entered, of sends and receives, and when the clocks of two hosts cannot decide it.
        """
        if self.members is None or {item.rank for item in self.calls} != set(self.members):
            return None
        *others, last = self.calls
        close = any(last.begin_ns - item.begin_ns < last.uncertain_ns(item) for item in others)
        return None if close or last.call.point_to_point else last


def meet(calls: Iterable[Call]) -> list[Meeting]:
    """All collectives, and all sends with their receives."""
    found: dict[Key, Meeting] = {}
    for item in sorted(calls, key=lambda item: item.begin_ns):
        group = next((group for group in item.process.snapshot.groups if group.name == item.call.group), None)
        members = group.ranks if group is not None else None
        key = (item.process.attempt, item.call.group, members, *_number(item, group))
        found.setdefault(key, Meeting(members)).calls.append(item)
    return list(found.values())


def _number(item: Call, group: Group | None) -> Key:
    """Of a collective its number in the group; sends and receives are numbered for each pair and direction."""
    call = item.call
    if not call.point_to_point:
        return (call.sequence_nr,)
    own = group.own_rank if group is not None and group.own_rank is not None else item.rank
    sender, receiver = (own, call.peer) if call.op == "send" else (call.peer, own)
    return "from", sender, "to", receiver, call.sequence_nr
