"""How the processes of a job meant to find each other: their calls of init_process_group(), compared.

Calls are compared by number, each process's first with the others' first: a program may leave a job and join another.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from pytracer.analyze.evidence.ends.signal_senders import from_time_limit
from pytracer.analyze.evidence.waits.waits import main_stack
from pytracer.analyze.view import JobView, ProcessView
from pytracer.decode.types.journal import Rank, Rendezvous

_CALL, _CALL_FILE = "init_process_group", "/torch/distributed/distributed_c10d.py"
_A_WHILE_NS = 5_000_000_000


class Join(msgspec.Struct, frozen=True):
    """One call. `done_ns`: when it had returned, on the process's clock; None when it never did."""

    view: ProcessView
    data: Rendezvous
    begun_ns: int
    done_ns: int | None

    @property
    def store(self) -> Hashable:
        """What leads to the store of rank 0: only ranks with the same one meet."""
        data = self.data
        host = _host_of(data.master_addr, self.view.process.snapshot.host)
        return data.file if data.file is not None else (host, data.master_port)

    @property
    def waited_ns(self) -> int:
        """How long it took, or until its process ended."""
        end_ns = self.done_ns or self.view.process.ended_mono_ns or self.begun_ns
        return max(0, end_ns - self.begun_ns)


class Mismatch(msgspec.Struct, frozen=True):
    """Calls that cannot meet. `sides`: by value of `variable`, most first; of "twice" the calls of each repeated rank.

    `missing`: ranks of the job that no process has. `whole`: all ranks of the job called, each once.
    """

    kind: Literal["store", "world-size", "twice"]
    variable: str
    sides: tuple[tuple[Join, ...], ...]
    missing: tuple[int, ...] = ()
    whole: bool = False

    @property
    def tie(self) -> bool:
        """Whether no majority decides which value is wrong."""
        return self.kind != "twice" and len(self.sides[0]) <= sum(map(len, self.sides[1:]))

    @property
    def odd(self) -> tuple[Join, ...]:
        """Those that differ from most; all that have the same rank, or all where nothing decides."""
        sides = self.sides if self.tie or self.kind == "twice" else self.sides[1:]
        return tuple(join for side in sides for join in side)


def find_mismatch(job: JobView) -> Mismatch | None:
    """The first calls that did not return and could not have."""
    calls = [_joins(view) for view in job.views]
    for number in range(max(map(len, calls), default=0)):
        here = [joins[number] for joins in calls if number < len(joins)]
        open_ones = _without_complete(here)
        if any(join.done_ns is None for join in open_ones):
            found = _twice(open_ones) or _sizes(open_ones) or _stores(open_ones)
            if found is not None:
                return found
    return None


def open_joins(job: JobView) -> list[Join]:
    """Calls that never returned, of processes that then gave up by an exception, or that a time limit found in them."""
    calls = [join for view in job.views for join in _joins(view)[-1:] if join.done_ns is None]
    return [join for join in calls if join.view.raised or _was_inside(job, join)]


def met_with(job: JobView, join: Join) -> list[Join]:
    """All calls for the same job at the same store that never returned, that one included."""
    calls = [item for view in job.views for item in _joins(view)[-1:] if item.done_ns is None]
    return [item for item in calls if (item.store, item.data.world_size) == (join.store, join.data.world_size)]


def _was_inside(job: JobView, join: Join) -> bool:
    """Whether a signal at a time limit found the process in that call, after a while."""
    stack = main_stack(join.view)
    inside = any(frame.function == _CALL and (frame.file or "").endswith(_CALL_FILE) for frame in stack)
    return inside and join.waited_ns >= _A_WHILE_NS and from_time_limit(job, join.view)


def _joins(view: ProcessView) -> list[Join]:
    snapshot = view.process.snapshot
    own = [fact for fact in snapshot.recorded(Rendezvous) if fact.mono_ns >= snapshot.created_mono_ns]
    ranks = [fact.mono_ns for fact in snapshot.recorded(Rank) if fact.data.left is None]
    found = []
    for position, fact in enumerate(own):
        until = own[position + 1].mono_ns if position + 1 < len(own) else None
        done = next((at for at in ranks if fact.mono_ns <= at and (until is None or at < until)), None)
        known = fact.data.rank is not None and fact.data.world_size is not None
        if known and (fact.data.file is not None or fact.data.master_port is not None):
            found.append(Join(view, fact.data, fact.mono_ns, done))
    return found


def _without_complete(joins: Sequence[Join]) -> list[Join]:
    """Without jobs whose ranks have all met: several jobs may be recorded in one run."""
    kept = []
    for side in _by(joins, lambda join: (join.store, join.data.world_size)):
        ranks = {join.data.rank for join in side}
        if any(join.done_ns is None for join in side) or len(ranks) < (side[0].data.world_size or 0):
            kept += side
    return kept


def _twice(joins: Sequence[Join]) -> Mismatch | None:
    for side in _by(joins, lambda join: join.store):
        ranks = _by(side, lambda join: join.data.rank)
        again = tuple(tuple(same) for same in ranks if len(same) > 1 and _at_once(same))
        if again:
            return Mismatch("twice", _name(again[0][0], "rank"), again, _missing(side))
    return None


def _at_once(joins: Sequence[Join]) -> bool:
    """Whether they were there at the same time: a process may also have replaced another one."""
    begun = max(_run_ns(join, join.begun_ns) for join in joins)
    return all(
        join.view.process.ended_mono_ns is None or _run_ns(join, join.view.process.ended_mono_ns) > begun
        for join in joins
    )


def _run_ns(join: Join, mono_ns: int) -> int:
    return join.view.clock.relative(mono_ns) or 0


def _sizes(joins: Sequence[Join]) -> Mismatch | None:
    for side in _by(joins, lambda join: join.store):
        sizes = _by(side, lambda join: join.data.world_size)
        if len(sizes) > 1 and _distinct(side):
            return Mismatch("world-size", _name(side[0], "world_size"), _most_first(sizes))
    return None


def _stores(joins: Sequence[Join]) -> Mismatch | None:
    """Stores that together have each rank once; with the same rank in two of them they are several jobs."""
    stores = _by(joins, lambda join: join.store)
    size = joins[0].data.world_size or 0
    same_size = all(join.data.world_size == size for join in joins)
    if len(stores) < 2 or not same_size or not _distinct(joins) or any(join.done_ns is not None for join in joins):
        return None
    if any(join.data.rank is None or join.data.rank >= size for join in joins):
        return None
    sides = _most_first(stores)
    first, other = sides[0][0], sides[1][0]
    if first.data.file is not None or other.data.file is not None:
        variable = "init_method"
    else:
        variable = "MASTER_PORT" if first.data.master_port != other.data.master_port else "MASTER_ADDR"
    return Mismatch("store", variable, sides, whole=len(joins) == size)


def _distinct(joins: Sequence[Join]) -> bool:
    return len({join.data.rank for join in joins}) == len(joins)


def _missing(joins: Sequence[Join]) -> tuple[int, ...]:
    size = max(join.data.world_size or 0 for join in joins)
    there = {join.data.rank for join in joins}
    # A rank that is there twice takes the place of another one; more may not have got so far.
    missing = [rank for rank in range(min(size, len(joins))) if rank not in there]
    return tuple(missing)


def _name(join: Join, argument: str) -> str:
    """What the program set it by."""
    return argument if argument in join.data.passed else argument.upper()


def _by(joins: Sequence[Join], key: Callable[[Join], Hashable]) -> list[list[Join]]:
    groups: dict[Hashable, list[Join]] = {}
    for join in joins:
        groups.setdefault(key(join), []).append(join)
    return list(groups.values())


def _most_first(sides: Sequence[Sequence[Join]]) -> tuple[tuple[Join, ...], ...]:
    return tuple(tuple(side) for side in sorted(sides, key=lambda side: (-len(side), side[0].data.rank or 0)))


@lru_cache(maxsize=4096)
def _host_of(name: str | None, own: str) -> str | None:
    """The host that a MASTER_ADDR names: a loopback address is each host's own."""
    if not name or is_loopback(name):
        return own.split(".")[0] if name else None
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.split(".")[0]
    return name


def is_loopback(name: str | None) -> bool:
    """Whether an address means each host itself."""
    try:
        return name == "localhost" or (name is not None and ipaddress.ip_address(name).is_loopback)
    except ValueError:
        return False
