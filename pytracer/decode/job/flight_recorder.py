"""Adds Flight Recorder dumps to recordings: a dump's collectives complete those of its rank's recording.

The recording takes precedence: its operations are kept and only completed. A dump identifies its process by rank only,
so it has to match: created while that process ran, and with the same operations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pytracer.decode.formats.flight_recorder import FlightDump, FlightEntry
from pytracer.decode.types.snapshot import Collective, FlightUse, Group, Job, Process, Snapshot

_BEFORE_NS = 60_000_000_000  # wall clocks may be set while a job runs
_PROGRESS = ("scheduled", "started", "completed")

_Key = tuple[str | None, int]


def add_dumps(job: Job, dumps: Sequence[FlightDump]) -> tuple[Job, tuple[FlightUse, ...]]:
    """The job with the dumps' evidence, and what was done with each of them."""
    processes = list(job.processes)
    uses = []
    for dump in dumps:
        at = _process_of(processes, dump)
        if at is None or dump.own:
            why = "it was written by pytracer, from the black boxes" if dump.own else _unmatched(dump)
            uses.append(_use(dump, None, 0, 0, why))
            continue
        problem = _foreign(processes[at].snapshot, dump)
        if problem is not None:
            uses.append(_use(dump, None, 0, 0, problem))
            continue
        snapshot, known, added = _merged(processes[at].snapshot, dump)
        processes[at] = replace(processes[at], snapshot=snapshot)
        uses.append(_use(dump, snapshot.pid, known, added))
    return replace(job, processes=tuple(processes)), tuple(uses)


def carried_over(before: Snapshot, full: Snapshot) -> Snapshot:
    """A recording read in full, with what dumps had added to what was known of it before."""
    items = list(full.collectives)
    places = {_key(item): n for n, item in enumerate(items) if not item.point_to_point}
    added = []
    for item in before.collectives:
        at = places.get(_key(item)) if not item.point_to_point else None
        if at is not None:
            items[at] = item
        elif not item.number:  # only a dump has it
            added.append(item)
    return replace(full, collectives=_in_order([*items, *added]), groups=before.groups)


def _process_of(processes: Sequence[Process], dump: FlightDump) -> int | None:
    """The rank's process; of several attempts the one that ran when the dump's first entry was made."""
    ranks = [n for n, p in enumerate(processes) if p.role == "rank" and p.rank == dump.rank and dump.rank is not None]
    first = next((entry.created_ns for entry in dump.entries if entry.created_ns), None)
    if first is not None:
        alive = [n for n in ranks if processes[n].snapshot.created_wall_ns <= first]
        ranks = alive or ranks[:1]
    return max(ranks, key=lambda n: processes[n].snapshot.created_wall_ns, default=None)


def _unmatched(dump: FlightDump) -> str:
    if dump.rank is None:
        return "neither its name nor its content has its rank"
    return f"there is no black box of rank {dump.rank}"


def _foreign(box: Snapshot, dump: FlightDump) -> str | None:
    """Why this dump cannot be of this process."""
    times = [entry.created_ns for entry in dump.entries if entry.created_ns]
    if times and max(times) < box.created_wall_ns - _BEFORE_NS:
        return "it is older than the run"
    ours = {_key(item): item.op for item in box.collectives if not item.point_to_point}
    both = [
        (ours[entry.group, entry.sequence_nr], entry.op)
        for entry in dump.entries
        if not entry.point_to_point and (entry.group, entry.sequence_nr) in ours
    ]
    differ = [pair for pair in both if pair[0] != pair[1]]
    if differ and len(differ) * 2 > len(both):
        return f"it records other operations than the black box: {differ[0][1]} where that has {differ[0][0]}"
    return None


def _key(item: Collective) -> _Key:
    return item.group, item.sequence_nr


def _merged(box: Snapshot, dump: FlightDump) -> tuple[Snapshot, int, int]:
    items = list(box.collectives)
    places: dict[_Key, int] = {_key(item): n for n, item in enumerate(items) if not item.point_to_point}
    known = 0
    added: list[Collective] = []
    for entry in dump.entries:
        at = places.get((entry.group, entry.sequence_nr)) if not entry.point_to_point else None
        if entry.point_to_point and (any(item.point_to_point for item in items) or (box.light and items)):
            known += 1  # point-to-point operations are numbered differently: the recording is complete by itself
        elif at is not None and items[at].op == entry.op:
            items[at] = _completed(items[at], entry, box)
            known += 1
        elif at is None:
            added.append(_collective(entry, box))
    return replace(box, collectives=_in_order([*items, *added]), groups=_groups(box, dump)), known, len(added)


def _in_order(items: Iterable[Collective]) -> tuple[Collective, ...]:
    return tuple(sorted(items, key=lambda item: item.scheduled_ns or item.started_ns or 0))


def _completed(item: Collective, entry: FlightEntry, box: Snapshot) -> Collective:
    """Our operation, with what only the dump has. The later state wins: GPU work ends unobserved by us."""
    further = item.state in _PROGRESS and entry.state in _PROGRESS
    further = further and _PROGRESS.index(entry.state) > _PROGRESS.index(item.state)
    return replace(
        item,
        state=entry.state if further else item.state,
        started_ns=item.started_ns or _mono(box, entry.started_ns),
        completed_ns=item.completed_ns or _mono(box, entry.completed_ns),
        timeout_ms=item.timeout_ms if item.timeout_ms is not None else entry.timeout_ms,
        python=item.python or entry.python,
        caller=item.caller or entry.caller,
    )


def _collective(entry: FlightEntry, box: Snapshot) -> Collective:
    inputs = entry.input_sizes or entry.output_sizes
    return Collective(
        sequence_nr=entry.sequence_nr,
        op=entry.op,
        backend=entry.backend,
        state=entry.state,
        started_ns=_mono(box, entry.started_ns),
        completed_ns=_mono(box, entry.completed_ns),
        buffer_addr=None,
        storage_addr=None,
        numel=_numel(inputs),
        nbytes=None,
        sizes=inputs[0] if inputs else (),
        dtype=entry.dtype,
        tid=0,
        group=entry.group,
        scheduled_ns=_mono(box, entry.created_ns),
        peer=entry.peer,
        point_to_point=entry.point_to_point,
        timeout_ms=entry.timeout_ms,
        output_numel=_numel(entry.output_sizes),
        python=entry.python,
        caller=entry.caller,
    )


def _numel(tensors: Sequence[Sequence[int]]) -> int | None:
    total = sum(math.prod(sizes) for sizes in tensors)
    return total if tensors and total < 1 << 63 else None


def _groups(box: Snapshot, dump: FlightDump) -> tuple[Group, ...]:
    """The recording's groups; those without known members, and others, from the dump."""
    told = {name: ranks for name, ranks in dump.groups.items() if ranks}
    known = {group.name for group in box.groups}
    ours = [
        replace(group, ranks=told[group.name], size=group.size or len(told[group.name]))
        if group.name in told and group.ranks is None
        else group
        for group in box.groups
    ]
    described = {entry.group: entry for entry in dump.entries if entry.group is not None}
    new = [
        Group(
            name, described[name].description, described[name].backend, len(ranks) if ranks else None, None, ranks, None
        )
        for name, ranks in {**dict.fromkeys(described), **dump.groups}.items()
        if name in described and name not in known and name is not None
    ]
    return (*ours, *new)


def _mono(box: Snapshot, wall_ns: int | None) -> int | None:
    return None if wall_ns is None else wall_ns - box.created_wall_ns + box.created_mono_ns


def _use(dump: FlightDump, pid: int | None, known: int, added: int, *why: str) -> FlightUse:
    last: dict[str, int] = {}
    for entry in dump.entries:
        if not entry.point_to_point and entry.group is not None:
            last[entry.group] = max(entry.sequence_nr, last.get(entry.group, 0))
    return FlightUse(dump.path, dump.rank, len(dump.entries), pid, known, added, last, (*why, *dump.notes))
