"""A digest: what `pytracer inspect` needs of one node's recordings, in a few KB for each rank (docs/guide/digests.md).

    magic, version, length and SHA-256 of the body      see HEAD
    body                                                zlib, msgpack: `Body`

The content are the reader's own objects, a `Job` of reduced snapshots, so that a digest is judged by the same rules as
recordings. What ranks have in common is stored once: members of groups, and the calls of collectives but for their
numbers, times and addresses.
"""

from __future__ import annotations

import dataclasses
import hashlib
import struct
import zlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from pytracer.decode.types import journal, records
from pytracer.decode.types.journal import MadeGroup, SeenGroup
from pytracer.decode.types.snapshot import (
    Collective,
    CollectiveStateName,
    Group,
    Job,
    LauncherRecord,
    Process,
    Snapshot,
)
from pytracer.decode.types.snapshot import Damage as Damage
from pytracer.decode.types.storages import Storage

VERSION = (1, 0)
MAGIC = b"\x89pytracer digest\r\n\x1a\n"
HEAD = struct.Struct("<20sHHQQ32s")  # magic, major, minor, bytes of the body, of its content, SHA-256 of the body
LARGEST = 1 << 28  # bytes of a file, and of its content
STATES: tuple[CollectiveStateName, ...] = get_args(CollectiveStateName)
# Of a collective, what differs between two calls of one line of the program; the rest is stored once, as a template.
_VARYING = (
    "number", "sequence_nr", "state", "scheduled_ns", "started_ns", "completed_ns", "buffer_addr", "storage_addr",
    "output_addr", "output_storage_addr", "step", "epoch", "progress_unknown",
)  # fmt: skip
FIELDS = tuple(field.name for field in dataclasses.fields(Collective))
PLACES = tuple(FIELDS.index(name) for name in _VARYING)
_BLANK = {"number": 0, "sequence_nr": 0, "state": "scheduled", "progress_unknown": False}
TAGGED: dict[str, type] = {kind.__name__: kind for kind in (*get_args(journal.Payload), *get_args(records.Record))}


class Call(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A collective: its template, then `_VARYING`; `started` and `completed` since the call."""

    template: int
    number: int
    sequence_nr: int
    state: int
    scheduled_ns: int | None
    started: int | None
    completed: int | None
    buffer_addr: int | None
    storage_addr: int | None
    output_addr: int | None
    output_storage_addr: int | None
    step: int | None
    epoch: int | None
    progress_unknown: bool


TaggedFact = tuple[int, int, str, str, msgspec.Raw]
TaggedEvent = tuple[int, int, str, str, str, msgspec.Raw]


class Groups(msgspec.Struct, array_like=True):
    """Of one process: runs of `Body.made`, as (first, count), and its own groups: place in them, and members."""

    runs: list[tuple[int, int]] = []
    own: list[tuple[int, Group, int | None]] = []


def shape(kind: type, **own: Any) -> type[msgspec.Struct]:
    """A struct with the fields of a dataclass, but those of `own`; defaults are not stored."""
    hints = get_type_hints(kind) | own
    fields: list[Any] = []
    for item in dataclasses.fields(kind):
        default: Any = msgspec.NODEFAULT
        if get_origin(own.get(item.name)) is list:
            default = msgspec.field(default_factory=list)
        elif own.get(item.name) is Groups:
            default = msgspec.field(default_factory=Groups)
        elif own.get(item.name) is msgspec.Raw:
            default = NOTHING if _has_default(item) else default
        elif item.default is not dataclasses.MISSING:
            default = item.default
        elif item.default_factory is not dataclasses.MISSING:
            default = msgspec.field(default_factory=item.default_factory)
        fields.append((item.name, hints[item.name], default))
    return msgspec.defstruct(f"_{kind.__name__}", fields, kw_only=True, omit_defaults=True)


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return (field.default, field.default_factory) != (dataclasses.MISSING, dataclasses.MISSING)


NOTHING = msgspec.Raw()  # a field that was not stored
EMPTY = msgspec.Raw(msgspec.msgpack.encode([]))
OWN_SHAPES: dict[str, Any] = {
    "facts": list[TaggedFact],
    "events": list[TaggedEvent],
    "collectives": list[Call],
    "groups": Groups,
    "storages": list[Storage],
}
_Snapshot: Any = shape(Snapshot, **OWN_SHAPES)
_Process: Any = shape(Process, snapshot=_Snapshot)


def body_of(process: Any) -> type[msgspec.Struct]:
    """The struct of a body whose processes have this shape."""
    fields: list[Any] = [
        ("pytracer", str),
        ("directory", str),
        ("processes", list[process]),
        ("launcher", LauncherRecord | None, None),
        ("more_launchers", tuple[LauncherRecord, ...], ()),
        ("damage", tuple[Damage, ...], ()),
        ("replaced_by_exec", tuple[str, ...], ()),
        ("left_out", int, 0),
        ("members", msgspec.Raw, EMPTY),  # of groups: a list of runs of ranks, as (first, step, count)
        ("templates", list[Collective], []),
        ("made", msgspec.Raw, EMPTY),  # groups as all processes know them: a list of each and its members
    ]
    return msgspec.defstruct("Body", fields, kw_only=True, omit_defaults=True)


_Body: Any = body_of(_Process)
_encoder = msgspec.msgpack.Encoder()


@dataclasses.dataclass(frozen=True)
class Digest:
    """The content of one. `left_out`: processes that ended well and were no ranks."""

    job: Job
    pytracer: str
    left_out: int = 0


def encode_digest(digest: Digest) -> bytes:
    """The file; equal jobs give equal bytes."""
    job, shared = digest.job, _Shared()
    body = _Body(
        pytracer=digest.pytracer,
        directory=job.directory,
        processes=[_process(item, shared) for item in job.processes],
        launcher=job.launcher,
        more_launchers=job.more_launchers,
        damage=job.damage,
        replaced_by_exec=job.replaced_by_exec,
        left_out=digest.left_out,
        members=msgspec.Raw(_encoder.encode([_runs(ranks) for ranks in shared.members])),
        templates=[Collective(*values) for values in shared.templates],
        made=msgspec.Raw(_encoder.encode(list(shared.made))),
    )
    content = _encoder.encode(body)
    packed = zlib.compress(content, 9)
    head = HEAD.pack(MAGIC, *VERSION, len(packed), len(content), hashlib.sha256(packed).digest())
    return head + packed


class _Shared:
    """What is stored once for all processes."""

    def __init__(self) -> None:
        self.members: dict[tuple[int, ...], int] = {}
        self.templates: dict[tuple[Any, ...], int] = {}
        self.made: dict[tuple[Group, int | None], int] = {}

    def groups_of(self, groups: Iterable[Group]) -> Groups:
        """A rank records all groups that it helped to make, thousands of which are those of the other ranks."""
        found = Groups()
        for place, group in enumerate(groups):
            members = None if group.ranks is None else self.members.setdefault(group.ranks, len(self.members))
            number = self.made.setdefault((dataclasses.replace(group.as_made, ranks=None), members), len(self.made))
            if found.runs and sum(found.runs[-1]) == number:
                found.runs[-1] = (found.runs[-1][0], found.runs[-1][1] + 1)
            else:
                found.runs.append((number, 1))
            if group.is_own:
                found.own.append((place, dataclasses.replace(group, ranks=None), members))
        return found

    def call(self, item: Collective) -> Call:
        values = [getattr(item, name) for name in FIELDS]
        for place, name in zip(PLACES, _VARYING, strict=True):
            values[place] = _BLANK.get(name)
        template = self.templates.setdefault(tuple(values), len(self.templates))
        called = item.scheduled_ns or 0
        return Call(
            template, item.number, item.sequence_nr, STATES.index(item.state), item.scheduled_ns,
            None if item.started_ns is None else item.started_ns - called,
            None if item.completed_ns is None else item.completed_ns - called,
            item.buffer_addr, item.storage_addr, item.output_addr, item.output_storage_addr, item.step, item.epoch,
            item.progress_unknown,
        )  # fmt: skip


def _process(process: Process, shared: _Shared) -> Any:
    values = {field.name: getattr(process, field.name) for field in dataclasses.fields(Process)}
    return _Process(**(values | {"snapshot": _snapshot(process.snapshot, shared)}))


def _snapshot(snapshot: Snapshot, shared: _Shared) -> Any:
    values = {field.name: getattr(snapshot, field.name) for field in dataclasses.fields(Snapshot)}
    values["facts"] = [
        (fact.mono_ns, fact.epoch, fact.kind, *_tagged(fact.data))
        for fact in snapshot.facts
        if not isinstance(fact.data, (MadeGroup, SeenGroup))  # they are in `groups`
    ]
    values["events"] = [
        (event.mono_ns, event.tid, event.thread, event.kind, *_tagged(event.data))
        for event in snapshot.events
        if not isinstance(event.data, Collective)
    ]
    values["collectives"] = [shared.call(item) for item in snapshot.collectives]
    values["groups"] = shared.groups_of(snapshot.groups)
    values["storages"] = list(snapshot.storages)
    return _Snapshot(**values)


def _tagged(data: Any) -> tuple[str, msgspec.Raw]:
    return type(data).__name__, msgspec.Raw(_encoder.encode(data))


def _runs(ranks: Iterable[int]) -> list[tuple[int, int, int]]:
    """`0-7` and `0, 8, 16 ...` take one run each."""
    found: list[tuple[int, int, int]] = []
    for rank in ranks:
        first, step, count = found[-1] if found else (0, 0, 0)
        if count == 1 and rank > first:
            found[-1] = (first, rank - first, 2)
        elif count and rank == first + step * count and step:
            found[-1] = (first, step, count + 1)
        else:
            found.append((rank, 0, 1))
    return found


T = TypeVar("T")


def last_calls(items: Sequence[T], most: int, is_open: Callable[[T], bool], group: Callable[[T], Hashable]) -> list[T]:
    """Collectives without the early ones: the last ones, the last `most` of the open ones, and the last one of each
    group, as a light `read_box` keeps them.
    """
    begin = max(0, len(items) - most)
    kept = list(items[begin:])
    room = most - sum(map(is_open, kept))
    groups = set(map(group, kept))
    for item in reversed(items[:begin]):
        last_of_group = group(item) not in groups
        if last_of_group or (room > 0 and is_open(item)):
            kept.insert(0, item)
            groups.add(group(item))
            room -= is_open(item)
    return kept
