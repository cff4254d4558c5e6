"""Did all ranks of a group call the same collectives in the same order? Compared by sequence number within the group.

Ranks are added one after another. What is kept is one sample per kind of call of a sequence number, with the ranks that
made it as intervals; a number that all members called alike is dropped. 1024 ranks with 1000 collectives take
seconds. Entries that a ring has overwritten are not absent: nothing is concluded from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.ends.sent_signals import sent_signals
from pytracer.decode.types.snapshot import Collective, CollectiveStateName, Group, Job, Process, Snapshot

UNFINISHED = ("scheduled", "started", "failed")
FIELDS = ("op", "root", "reduce_op", "dtype", "size", "shape")
VOTERS = 3  # a majority of two would be a guess
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_UNEVEN = ("all_to_all", "all_to_all_single", "gather", "scatter")  # ranks may pass different sizes
_BARRIERS = ("barrier", "monitored_barrier")
_LISTS = ("all_gather", "reduce_scatter")  # a list on one side: uneven sizes may be meant
_PEER_ERROR_NS = 50_000_000
_GLOO = "gloo/transport/"  # its messages begin with the file that raised them
STOOD_NS = 10_000_000_000  # who ends a job that has waited as long ends a hang

Fingerprint = tuple[object, ...]
GroupKey = tuple[str | None, tuple[int, ...] | None]


@dataclass
class Variant:
    """One kind of call at a sequence number: a sample, and the global ranks that made it, as intervals."""

    fingerprint: Fingerprint
    call: Collective
    spans: list[tuple[int, int]] = field(default_factory=list)

    @property
    def ranks(self) -> tuple[int, ...]:
        """In ascending order."""
        return tuple(rank for low, high in self.spans for rank in range(low, high + 1))

    @property
    def count(self) -> int:
        """How many ranks."""
        return sum(high - low + 1 for low, high in self.spans)

    def add(self, rank: int) -> None:
        """One more rank; they come in ascending order."""
        if self.spans and self.spans[-1][1] == rank - 1:
            self.spans[-1] = (self.spans[-1][0], rank)
        else:
            self.spans.append((rank, rank))


class Mismatch(msgspec.Struct, frozen=True):
    """The first sequence number at which ranks disagree. `odd` are the outvoted ranks; None: a vote decides nothing.

    `variants`: the largest first. `absent`: members without a record of this number. `later`: the number of the first
    disagreement behind this one that a rank noticed, where none noticed this one.
    """

    sequence_nr: int
    field: str
    variants: tuple[Variant, ...]
    odd: tuple[int, ...] | None
    absent: tuple[int, ...] = ()
    later: int | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the operation reported success on every rank."""
        return all(variant.call.state == "completed" for variant in self.variants)

    @property
    def silent(self) -> bool:
        """Whether no rank noticed, neither this nor a later one."""
        return self.succeeded and self.later is None

    @property
    def noticed(self) -> int:
        """The number of the collective in which ranks stood, or failed."""
        return self.later or self.sequence_nr


@dataclass
class GroupMatch:
    """A process group over all its ranks.

    `last` is the number of each known rank's last collective, `open` its collectives that did not complete, by number.
    `unknown` are members without evidence: without a readable recording, or not recording collectives.
    """

    name: str | None
    description: str | None
    backend: str | None
    ranks: tuple[int, ...]
    last: dict[int, int | None] = field(default_factory=dict)
    open: dict[int, dict[int, Collective]] = field(default_factory=dict)
    unknown: tuple[int, ...] = ()
    mismatch: Mismatch | None = None
    by_number: dict[int, list[Variant]] = field(default_factory=dict)

    def missing(self) -> tuple[int, tuple[int, ...]] | None:
        """The first number that some rank waits in, and the known members that did not call it.

        None once the group went apart: what follows is not comparable.
        """
        known = {rank: number for rank, number in self.last.items() if number is not None}
        apart = self.mismatch is not None and (self.mismatch.field == "op" or not self.mismatch.silent)
        if apart or len(known) < 2:
            return None
        least = min(known.values())
        waited = [number for calls in self.open.values() for number in calls if number > least]
        if not waited:
            return None
        first = min(waited)
        return first, tuple(sorted(rank for rank, number in known.items() if number < first))


class Matches(msgspec.Struct, frozen=True):
    """All groups of a job, in order of creation."""

    groups: tuple[GroupMatch, ...] = ()


def match_job(job: Job) -> Matches:
    """Compares the collectives of all ranks."""
    matcher = Matcher()
    for process in job.ranks:
        if process.rank is not None:
            matcher.add(process.rank, process)
    return matcher.result()


class Matcher:
    """Takes one rank after the other, in ascending order."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, GroupMatch] = {}
        self._made: dict[GroupKey, int] = {}
        self._known: set[int] = set()

    def add(self, rank: int, process: Process) -> None:
        """Compares one rank's collectives with the previous ranks'."""
        snapshot = process.snapshot
        if records_collectives(process):
            self._known.add(rank)
        by_name: dict[str | None, GroupMatch] = {}
        for group in snapshot.own_groups:
            if group.name is not None and (group.own_rank is not None or rank in (group.ranks or (rank,))):
                by_name[group.name] = self._group(group, process)
        roused = roused_ns(snapshot)
        for item in snapshot.collectives:
            if item.point_to_point or item.group is None or _is_after(item, roused):
                continue
            match = by_name.get(item.group)
            if match is None:
                continue
            last = match.last.get(rank)
            if last is None or item.sequence_nr > last:
                match.last[rank] = item.sequence_nr
            if item.state in UNFINISHED:
                match.open.setdefault(rank, {})[item.sequence_nr] = item
            _compare(match, rank, item)
        for match in by_name.values():
            match.last.setdefault(rank, None)

    def result(self) -> Matches:
        """All groups, each with its first mismatch."""
        for match in self._groups.values():
            for rank, number in match.last.items():
                if number is None and rank in self._known:
                    match.last[rank] = 0  # it records collectives, and has called none here
            match.unknown = tuple(rank for rank in match.ranks if match.last.get(rank) is None)
            found = (item for number in sorted(match.by_number) if (item := _judge(match, number)) is not None)
            match.mismatch = next(found, None)
            if match.mismatch is not None and match.mismatch.succeeded:
                later = next((item.sequence_nr for item in found if not item.succeeded), None)
                match.mismatch = structs.replace(match.mismatch, later=later)
            match.by_number = {}
        return Matches(tuple(sorted(self._groups.values(), key=lambda m: self._made[(m.name, m.ranks or None)])))

    def _group(self, group: Group, process: Process) -> GroupMatch:
        ranks = group.ranks
        if ranks is None and group.size is not None and group.size == process.world_size:
            ranks = tuple(range(group.size))
        key: GroupKey = (group.name, ranks)
        if ranks is None:  # Python did not see how it was made: the only one of that name
            key = next((other for other in self._groups if other[0] == group.name), key)
        if key not in self._groups:
            self._groups[key] = GroupMatch(group.name, group.description, group.backend, key[1] or ())
            self._made[key] = len(self._made)
        return self._groups[key]


def records_collectives(process: Process) -> bool:
    """Whether the absence of a collective is evidence: the hook is installed, and the recording is not damaged."""
    snapshot = process.snapshot
    seen = bool(snapshot.collectives) or any(group.own_rank is not None for group in snapshot.own_groups)
    return (seen or bool(snapshot.versions.torch)) and not snapshot.lacks_collectives and not snapshot.damage


def roused_ns(snapshot: Snapshot) -> int | None:
    """When a process that had called no collective for a while handled a request to end.

    What it calls then, as Lightning's handler does, is not what the others waited for; nor is that it leaves the group.
    """
    requests = [sent.mono_ns for sent in sent_signals(snapshot) if sent.handled]
    if not requests:
        return None
    begun = [(_begun(item), item) for item in snapshot.collectives]
    before = [max(at, item.completed_ns or 0) for at, item in begun if at is not None and at < requests[0]]
    return requests[0] if before and requests[0] - max(before) >= STOOD_NS else None


def _is_after(item: Collective, roused_ns: int | None) -> bool:
    begun = _begun(item)
    return roused_ns is not None and item.state in UNFINISHED and begun is not None and begun >= roused_ns


def _begun(item: Collective) -> int | None:
    return item.started_ns if item.scheduled_ns is None else item.scheduled_ns


def ended_by_peer_error(process: Process, item: Collective) -> bool:
    """Whether an operation that is recorded as completed ended by the exception that the process died of.

    gloo's send and receive end their work before they throw (torch 2.13). On a busy machine, or below a `finally`, the
    exception is seen long after: then it is gloo's own, of the last operation that ended.
    """
    at = process.exception_mono_ns
    done = item.completed_ns
    if at is None or done is None or not item.point_to_point or done > at:
        return False
    return at - done <= _PEER_ERROR_NS or _ended_last(process, item, done)


def _ended_last(process: Process, item: Collective, done: int) -> bool:
    """Whether gloo's error can be of no other operation: none was called after this one, or ended after it."""
    exception, calls = process.exception, process.snapshot.collectives
    if exception is None or _GLOO not in (exception.message or "") or (_begun(calls[-1]) or 0) > done:
        return False
    stack, place = exception.python_stack, item.place
    if stack and stack[0].function == item.op and place is not None:
        return any((frame.file, frame.line) == (place.file, place.line) for frame in stack)
    return not any(other.state in UNFINISHED or (other.completed_ns or 0) > done for other in calls)


def state_of(process: Process, item: Collective) -> CollectiveStateName:
    """The state of an operation, "failed" also of a message whose failure is recorded as its end."""
    return "failed" if ended_by_peer_error(process, item) else item.state


def fingerprint(item: Collective) -> Fingerprint:
    """What must be equal on all ranks, in the order of `FIELDS`; None for what need not be equal or is unknown."""
    op = item.op
    if op in _BARRIERS:
        return op, None, None, None, None, None
    root = item.root if op in _ROOTED else None
    if op in _UNEVEN:
        return op, root, item.reduce_op, item.dtype, None, None
    shape = tuple(n for n in item.sizes if n != 1)
    return op, root, item.reduce_op, item.dtype, (item.numel, item.output_numel), shape if len(shape) > 1 else None


def _compare(match: GroupMatch, rank: int, item: Collective) -> None:
    variants = match.by_number.get(item.sequence_nr)
    if variants is None:
        match.by_number[item.sequence_nr] = [Variant(fingerprint(item), item, [(rank, rank)])]
        return
    mark = variants[0].fingerprint if _same(variants[0].call, item) else fingerprint(item)
    for variant in variants:
        if variant.fingerprint == mark or _told_alike(variant.call, item):
            variant.add(rank)
            if item.state != "completed":
                variant.call = item
            break
    else:
        variants.append(Variant(mark, item, [(rank, rank)]))
    if len(variants) == 1 and variants[0].count == len(match.ranks):
        del match.by_number[item.sequence_nr]  # all agree


def _told_alike(one: Collective, other: Collective) -> bool:
    """Whether an operation known from a Flight Recorder dump only may be the other one: a dump has no root and no
    reduce operation, and lists of tensors in another shape.
    """
    if one.number and other.number:
        return False
    pairs = ((one.dtype, other.dtype), (one.numel, other.numel), (one.root, other.root))
    known = [(a, b) for a, b in (*pairs, (one.reduce_op, other.reduce_op)) if a is not None and b is not None]
    return one.op == other.op and (one.op in _BARRIERS or one.op in _UNEVEN or all(a == b for a, b in known))


def _same(one: Collective, other: Collective) -> bool:
    """Whether they look the same at first glance: cheaper than a fingerprint each."""
    return (
        one.op == other.op and one.numel == other.numel and one.dtype == other.dtype and one.sizes == other.sizes
        and one.root == other.root and one.reduce_op == other.reduce_op and one.output_numel == other.output_numel
    )  # fmt: skip


def _judge(match: GroupMatch, number: int) -> Mismatch | None:
    variants = sorted(match.by_number[number], key=lambda item: (-item.count, item.spans[0]))
    name = _differing(variants)
    if name is None:
        return None
    called = {rank for variant in variants for rank in variant.ranks}
    absent = tuple(rank for rank in match.ranks if rank not in called)
    if name == "size" and variants[0].call.op in _LISTS and (absent or _adds_up(variants)):
        return None
    return Mismatch(number, name, tuple(variants), _outvoted(variants, len(called)), absent)


def _differing(variants: Sequence[Variant]) -> str | None:
    """The first field on which two of them disagree; what is unknown disagrees with nothing."""
    for position, name in enumerate(FIELDS):
        values = {item.fingerprint[position] for item in variants} - {None}
        if len(values) > 1:
            return name
    return None


def _adds_up(variants: Sequence[Variant]) -> bool:
    """Whether ranks gather or scatter parts of different sizes, and all expect the whole."""
    inputs = sum((item.call.numel or 0) * item.count for item in variants)
    outputs = sum((item.call.output_numel or 0) * item.count for item in variants)
    if variants[0].call.op == "all_gather":
        return {item.call.output_numel for item in variants} == {inputs}
    return {item.call.numel for item in variants} == {outputs}


def _outvoted(variants: Sequence[Variant], voters: int) -> tuple[int, ...] | None:
    if voters < VOTERS or variants[0].count * 2 <= voters:
        return None
    return tuple(sorted(rank for item in variants[1:] for rank in item.ranks))
