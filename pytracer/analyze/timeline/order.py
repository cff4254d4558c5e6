"""The order of events across processes: clocks of several hosts, and who was missing where others waited.

Processes of one boot share CLOCK_MONOTONIC and are compared exactly. Between hosts, collectives are the proof: in an
all-reduce no rank is done before all have entered. Each one that was completed bounds how far two clocks differ, from
both sides, and the bounds of many leave a millisecond or so. Where no collective joins two hosts, their wall clocks
are used, with a wide error. Blame is decided in `deaths/order.py`, not here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import msgspec

from pytracer.decode.types.snapshot import Collective, Job, Process

WALL_ERROR_NS = 2_000_000_000  # how far wall clocks of hosts that synchronize may be apart, generously
_DRIFT = 500e-6  # the kernel slews a clock by at most 500 ppm (adjtimex(2)); doubts grow with the time since a proof
_NO_BOUND = float("inf")
# No rank completes these before all have called them.
_MEETINGS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
OPEN = ("scheduled", "started", "failed")
# What the ranks of a group have in common: attempt, its name and ranks; and of one collective its number and op.
_Gathering = tuple[int | None, str | None, tuple[int, ...] | None]
_Number = tuple[int, str]


class HostClock(msgspec.Struct, frozen=True):
    """CLOCK_MONOTONIC of a boot on the run's own clock: add `offset_ns`, right to `error_ns`.

    `how`: "same clock", "collectives" or "wall clock".
    """

    offset_ns: int
    error_ns: int
    how: str


def host_clocks(job: Job, reference: str) -> dict[str, HostClock]:
    """The clock of every boot of the job, relative to CLOCK_MONOTONIC of the boot `reference`."""
    boots = _wall_offsets(job)
    if not boots:
        return {}
    own = boots.get(reference, median(boots.values()))
    bounds = _closed(_bounds(job), reference) if len(boots) > 1 else {}
    clocks = {}
    for boot, wall in boots.items():
        low, high = bounds.get(boot, (-_NO_BOUND, _NO_BOUND))
        if boot == reference:
            clocks[boot] = HostClock(0, 0, "same clock")
        elif -_NO_BOUND < low <= high < _NO_BOUND:
            clocks[boot] = HostClock(round((low + high) / 2), round((high - low) / 2) + 1, "collectives")
        else:  # nothing joins the two, or what does is a contradiction
            clocks[boot] = HostClock(round(wall - own), WALL_ERROR_NS, "wall clock")
    return clocks


def _wall_offsets(job: Job) -> dict[str, float]:
    """Wall clock minus CLOCK_MONOTONIC of each boot; the middle of its recordings, since the wall clock may be set."""
    found: dict[str, list[int]] = {}
    for process in job.processes:
        box = process.snapshot
        found.setdefault(box.boot_id, []).append(box.created_wall_ns - box.created_mono_ns)
    for launcher in job.launchers:
        found.setdefault(launcher.boot_id, []).append(launcher.started_wall_ns - launcher.started_mono_ns)
    return {boot: median(values) for boot, values in found.items()}


@dataclass
class _Met:
    """One collective on one host: when its last rank entered, and when its first one was done."""

    came_ns: int
    done_ns: int


def _bounds(job: Job) -> dict[tuple[str, str], float]:
    """For two boots (a, b): an upper bound of clock b's offset minus clock a's."""
    meetings: dict[_Gathering, dict[_Number, dict[str, _Met]]] = {}
    latest: dict[str, int] = {}
    for process in job.processes:
        boot = process.snapshot.boot_id
        last = latest.get(boot, 0)
        of_group: dict[str, dict[_Number, dict[str, _Met]]] = {}
        for item in _completed_meetings(process):
            calls = of_group.get(item.group or "")
            if calls is None:
                calls = of_group[item.group or ""] = meetings.setdefault(_gathering(process, item.group), {})
            called_ns, done_ns = item.scheduled_ns or 0, item.completed_ns or 0
            hosts = calls.setdefault((item.sequence_nr, item.op), {})
            met = hosts.get(boot)
            if met is None:
                hosts[boot] = _Met(called_ns, done_ns)
            else:
                met.came_ns = max(met.came_ns, called_ns)
                met.done_ns = min(met.done_ns, done_ns)
            last = max(last, done_ns)
        if last:
            latest[boot] = last
    bounds: dict[tuple[str, str], float] = {}
    for hosts in (hosts for calls in meetings.values() for hosts in calls.values()):
        hub, *others = sorted(hosts)
        for other in others:
            for a, b in ((hub, other), (other, hub)):
                # Host b's first rank was not done before host a's last one entered, and vice versa.
                drift = _DRIFT * max(0, latest[a] - hosts[a].came_ns)
                bound = hosts[a].done_ns - hosts[b].came_ns + drift
                bounds[a, b] = min(bounds.get((a, b), _NO_BOUND), bound)
    # A clock that was set while the job ran must not make those of all other hosts useless.
    return {(a, b): bound for (a, b), bound in bounds.items() if bound + bounds.get((b, a), _NO_BOUND) >= 0}


def _gathering(process: Process, name: str | None) -> _Gathering:
    ranks = next((group.ranks for group in reversed(process.snapshot.own_groups) if group.name == name), None)
    return process.attempt, name, ranks


def _completed_meetings(process: Process) -> Iterator[Collective]:
    for item in process.snapshot.collectives:
        if item.state != "completed" or item.group is None or not item.scheduled_ns or not item.completed_ns:
            continue
        if item.op.startswith(_MEETINGS) and not item.point_to_point:
            yield item


def _closed(bounds: Mapping[tuple[str, str], float], reference: str) -> dict[str, tuple[float, float]]:
    """Lowest and highest offset of each boot, through all boots in between."""
    boots = {boot for pair in bounds for boot in pair} | {reference}
    high = dict.fromkeys(boots, _NO_BOUND) | {reference: 0.0}
    low = dict.fromkeys(boots, -_NO_BOUND) | {reference: 0.0}
    for _ in boots:
        changed = False
        for (a, b), bound in bounds.items():
            if high[a] + bound < high[b]:
                high[b], changed = high[a] + bound, True
            if low[b] - bound > low[a]:
                low[a], changed = low[b] - bound, True
        if not changed:
            break
    return {boot: (low[boot], high[boot]) for boot in boots}


class Absence(msgspec.Struct, frozen=True):
    """A rank that never entered a collective in which others of its group waited. All are indices in the job."""

    group: str
    op: str
    sequence_nr: int
    absent: tuple[int, ...]
    waiting: tuple[int, ...]


def absences(processes: Iterable[tuple[int, Process]]) -> list[Absence]:
    """For each process group, the last collective that some of its ranks called and others did not.

    A rank that is held up in a collective of another group is not absent by itself, and is left out. So is one of
    which no collective was recorded: what its recording lost proves nothing.
    """
    members: dict[tuple[int | None, str, tuple[int, ...] | None], dict[int, Collective]] = {}
    held: dict[int, set[str]] = {}
    for index, process in processes:
        names = {group.name: group.ranks for group in process.snapshot.own_groups}
        for name, last in _last_of_groups(process.snapshot.collectives).items():
            members.setdefault((process.attempt, name, names.get(name)), {})[index] = last
            if last.state in ("scheduled", "started") and not last.async_op:
                held.setdefault(index, set()).add(name)
    found = []
    for (_, name, _), lasts in members.items():
        newest = max(lasts.values(), key=lambda item: item.sequence_nr)
        waiting = tuple(i for i, item in lasts.items() if _waits_in(item, newest))
        absent = tuple(i for i, item in lasts.items() if item.sequence_nr < newest.sequence_nr and not held.get(i))
        if waiting and absent:
            found.append(Absence(str(name), newest.op, newest.sequence_nr, absent, waiting))
    return found


def _waits_in(item: Collective, newest: Collective) -> bool:
    return item.sequence_nr == newest.sequence_nr and item.state in OPEN


def _last_of_groups(collectives: Sequence[Collective]) -> dict[str, Collective]:
    return {item.group: item for item in collectives if item.group is not None and not item.point_to_point}
