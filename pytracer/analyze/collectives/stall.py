"""Which rank waits for which in a running job: per process group, the first open collective and the absent ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytracer._text import capital, ranks_words, time_words
from pytracer.analyze.evidence.cuda.cuda_streams import name_of_stream
from pytracer.decode.types.records import Node, Step, Text
from pytracer.decode.types.snapshot import Collective, Event, Process, Snapshot
from pytracer.report.live import GroupWait, LiveCollective, LiveFrame, LiveProcess

_OPEN = ("scheduled", "started")
_LONG_NS = 30_000_000_000


def live_process(process: Process, now_ns: int) -> LiveProcess:
    """The state of a running process from its recording; `now_ns` on its own monotonic clock."""
    snapshot = process.snapshot
    record, at = _last_record(snapshot)
    last = max(snapshot.collectives, key=lambda item: (_began(item) or 0, item.number), default=None)
    return LiveProcess(
        pid=snapshot.pid,
        ppid=snapshot.ppid,
        rank=process.rank,
        role=process.role,
        command=list(snapshot.argv),
        running_ns=now_ns - snapshot.created_mono_ns,
        step=snapshot.step,
        last_record=record,
        last_record_ago_ns=now_ns - at if at is not None else None,
        last_collective=_collective(last, now_ns) if last else None,
        open_collectives=[_collective(item, now_ns) for item in snapshot.collectives if item.state in _OPEN],
        notes=list(_busy_streams(snapshot, now_ns)),
    )


def _busy_streams(snapshot: Snapshot, now_ns: int) -> Iterator[str]:
    """CUDA streams that have been busy for long: those of a kernel that does not end, or of much work."""
    for item in snapshot.cuda_streams:
        since, asked = item.since_ns, item.asked_ns
        if item.state == "busy" and since is not None and asked is not None and now_ns - since >= _LONG_NS:
            name = name_of_stream(item.device, item.stream)
            yield f"{name} was busy whenever it was asked, once a second, for {time_words(asked - since)}"


def find_waits(processes: Sequence[Process], now_ns: int) -> list[GroupWait]:
    """One entry per process group with an open collective, the longest wait first."""
    ranks = {process.rank: process for process in processes if process.rank is not None}
    names = dict.fromkeys(
        item.group for process in ranks.values() for item in process.snapshot.collectives if item.state in _OPEN
    )
    waits = [wait for name in names if (wait := _wait(name, ranks, now_ns)) is not None]
    return sorted(waits, key=lambda wait: -(wait.since_ns or 0))


def _wait(name: str | None, ranks: dict[int, Process], now_ns: int) -> GroupWait | None:
    called = {
        rank: {item.sequence_nr: item for item in process.snapshot.collectives if _is_of(item, name)}
        for rank, process in ranks.items()
    }
    number = min(
        (item.sequence_nr for own in called.values() for item in own.values() if item.state in _OPEN), default=0
    )
    if not number:
        return None
    inside = {rank: own[number] for rank, own in called.items() if number in own}
    waiting = sorted(rank for rank, item in inside.items() if item.state in _OPEN)
    members = [rank for rank in _members(name, ranks) if rank not in inside]
    # Old entries are overwritten: a rank that has called a later one has called this one.
    missing = [rank for rank in members if not (rank in called and max(called[rank], default=0) > number)]
    unseen = sorted(rank for rank in missing if rank not in ranks)
    ended = sorted(rank for rank in missing if rank in ranks and ranks[rank].status_kind != "running")
    absent = sorted(rank for rank in missing if rank in ranks and rank not in ended)
    done = sorted(rank for rank in {*inside, *members} if rank not in (*waiting, *missing))
    times = [began for rank in waiting if (began := _began(inside[rank])) is not None]
    since = now_ns - min(times) if times else None
    ops: dict[str, list[int]] = {}
    for rank, item in sorted(inside.items()):
        ops.setdefault(item.op, []).append(rank)
    op = max(ops, key=lambda word: len(ops[word]))
    says = _sentence(op, number, since, waiting, absent, ended, unseen, ops)
    return GroupWait(name, op, number, since, waiting, absent, done, ended, ops if len(ops) > 1 else None, says, unseen)


def _is_of(item: Collective, name: str | None) -> bool:
    return item.group == name and not item.point_to_point


def _members(name: str | None, ranks: dict[int, Process]) -> list[int]:
    """The global ranks of a group, from any member's recording; else all known ranks."""
    for process in ranks.values():
        for group in process.snapshot.own_groups:
            if group.name == name and group.ranks:
                return list(group.ranks)
    sizes = [process.world_size for process in ranks.values() if process.world_size is not None]
    return list(range(max(sizes))) if sizes else sorted(ranks)


def _sentence(
    op: str,
    number: int,
    since: int | None,
    waiting: list[int],
    absent: list[int],
    ended: list[int],
    unseen: list[int],
    ops: dict[str, list[int]],
) -> str:
    who = capital(_verb(waiting, "waits", "wait"))
    where = f"{op} number {number}" + (f" for {time_words(since)}" if since is not None else "")
    if len(ops) > 1:
        each = "; ".join(f"{capital(_verb(ranks, 'called', 'called'))} {word}" for word, ranks in ops.items())
        return f"{who} in collective number {number}, and the ranks disagree on what it is: {each}."
    parts = []
    if absent:
        parts.append(f"{_verb(absent, 'has', 'have')} not entered it")
    if ended:
        parts.append(f"{_verb(ended, 'has', 'have')} ended")
    if unseen:
        parts.append(f"{_verb(unseen, 'is', 'are')} not recorded here")
    if parts:
        return f"{who} in {where}; {' and '.join(parts)}."
    return f"{who} in {where}; every rank has entered it."


def _verb(ranks: Sequence[int], one: str, many: str) -> str:
    return f"{ranks_words(ranks) if ranks else 'no rank'} {one if len(ranks) == 1 else many}"


def _began(item: Collective) -> int | None:
    return item.scheduled_ns or item.started_ns


def _collective(item: Collective, now_ns: int) -> LiveCollective:
    at = item.completed_ns if item.state not in _OPEN else _began(item)
    frame = item.place
    return LiveCollective(
        op=item.op,
        group=item.group,
        sequence_nr=item.sequence_nr,
        state=item.state,
        ago_ns=now_ns - at if at is not None else None,
        dtype=item.dtype,
        sizes=list(item.sizes),
        peer=item.peer,
        called_at=LiveFrame(frame.function, frame.file, frame.line) if frame else None,
    )


def _last_record(snapshot: Snapshot) -> tuple[str | None, int | None]:
    """The newest record, and its time."""
    found = [(event.mono_ns, _event_words(event)) for event in snapshot.events[-1:]]
    found += [(fact.mono_ns, fact.kind.lower().replace("_", " ")) for fact in snapshot.facts[-1:]]
    for item in snapshot.collectives:
        for at, word in ((_began(item), "begins"), (item.completed_ns, "ends")):
            if at is not None:
                found.append((at, f"{item.op} {word}"))
    if not found:
        return None, None
    at, words = max(found)
    return words, at


def _event_words(event: Event) -> str:
    data = event.data
    name: object = None
    if isinstance(data, Node):
        name = data.name or None
    elif isinstance(data, Text):
        name = data.text or None
    elif isinstance(data, Step):
        name = data.step
    return event.kind.lower().replace("_", " ") + (f" {name}" if name is not None else "")
