"""A digest: what `pytracer inspect` needs of one node's recordings, in a few KB for each rank (docs/guide/digests.md).

    magic, version, length and SHA-256 of the body      see _HEAD
    body                                                zlib, msgpack: `_Digest`

The content are the reader's own objects, a `Job` of reduced snapshots, so that a digest is judged by the same rules as
recordings. What ranks have in common is stored once: members of groups, and the calls of collectives but for their
numbers, times and addresses.
"""

from __future__ import annotations

import dataclasses
import hashlib
import struct
import zlib
from collections.abc import Iterable
from typing import Any, get_args, get_type_hints

import msgspec

from pytracer._errors import InputError
from pytracer.decode.types import journal, records
from pytracer.decode.types.journal import Fact, MadeGroup, Members, SeenGroup
from pytracer.decode.types.snapshot import (
    Collective,
    CollectiveStateName,
    Event,
    Group,
    Job,
    LauncherRecord,
    Process,
    Snapshot,
)
from pytracer.decode.types.snapshot import Damage as Damage
from pytracer.decode.types.storage_table import StorageTable
from pytracer.decode.types.storages import Storage

SUFFIX = ".digest"
VERSION = (1, 0)
_MAGIC = b"\x89pytracer digest\r\n\x1a\n"
_HEAD = struct.Struct("<20sHHQQ32s")  # magic, major, minor, bytes of the body, of its content, SHA-256 of the body
LARGEST = 1 << 28  # bytes of a file, and of its content
_NO_DIGEST = "`pytracer digest RUN -o FILE` makes one"
_STATES: tuple[CollectiveStateName, ...] = get_args(CollectiveStateName)
# Of a collective, what differs between two calls of one line of the program; the rest is stored once, as a template.
_VARYING = (
    "number", "sequence_nr", "state", "scheduled_ns", "started_ns", "completed_ns", "buffer_addr", "storage_addr",
    "output_addr", "output_storage_addr", "step", "epoch", "progress_unknown",
)  # fmt: skip
_FIELDS = tuple(field.name for field in dataclasses.fields(Collective))
_PLACES = tuple(_FIELDS.index(name) for name in _VARYING)
_BLANK = {"number": 0, "sequence_nr": 0, "state": "scheduled", "progress_unknown": False}
_TAGGED: dict[str, type] = {kind.__name__: kind for kind in (*get_args(journal.Payload), *get_args(records.Record))}


class _Call(msgspec.Struct, array_like=True, frozen=True):
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


_TaggedFact = tuple[int, int, str, str, msgspec.Raw]
_TaggedEvent = tuple[int, int, str, str, str, msgspec.Raw]
_OWN_SHAPES: dict[str, Any] = {
    "facts": list[_TaggedFact],
    "events": list[_TaggedEvent],
    "collectives": list[_Call],
    "groups": list[tuple[int, int]],
    "storages": list[Storage],
}


def _shape(kind: type, **own: Any) -> type[msgspec.Struct]:
    """A struct with the fields of a dataclass, but those of `own`; defaults are not stored."""
    hints = get_type_hints(kind) | own
    fields: list[Any] = []
    for item in dataclasses.fields(kind):
        default: Any = msgspec.NODEFAULT
        if item.name in own:
            default = msgspec.field(default_factory=list) if own[item.name] in _OWN_SHAPES.values() else default
        elif item.default is not dataclasses.MISSING:
            default = item.default
        elif item.default_factory is not dataclasses.MISSING:
            default = msgspec.field(default_factory=item.default_factory)
        fields.append((item.name, hints[item.name], default))
    return msgspec.defstruct(f"_{kind.__name__}", fields, kw_only=True, omit_defaults=True)


_Snapshot: Any = _shape(Snapshot, **_OWN_SHAPES)
_Process: Any = _shape(Process, snapshot=_Snapshot)


class _Digest(msgspec.Struct, kw_only=True, omit_defaults=True):
    pytracer: str
    directory: str
    processes: list[_Process]
    launcher: LauncherRecord | None = None
    more_launchers: tuple[LauncherRecord, ...] = ()
    damage: tuple[Damage, ...] = ()
    replaced_by_exec: tuple[str, ...] = ()
    left_out: int = 0
    members: list[list[tuple[int, int, int]]] = []  # of groups: runs of ranks, as (first, step, count)
    templates: list[Collective] = []
    groups: list[tuple[Group, int | None]] = []  # each, and its members; snapshots have ranges of them


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Digest)
_payloads: dict[str, msgspec.msgpack.Decoder[Any]] = {
    name: msgspec.msgpack.Decoder(kind) for name, kind in _TAGGED.items()
}


@dataclasses.dataclass(frozen=True)
class Digest:
    """The content of one. `left_out`: processes that ended well and were no ranks."""

    job: Job
    pytracer: str
    left_out: int = 0


def encode_digest(digest: Digest) -> bytes:
    """The file; equal jobs give equal bytes."""
    job, shared = digest.job, _Shared()
    body = _Digest(
        pytracer=digest.pytracer,
        directory=job.directory,
        processes=[_process(item, shared) for item in job.processes],
        launcher=job.launcher,
        more_launchers=job.more_launchers,
        damage=job.damage,
        replaced_by_exec=job.replaced_by_exec,
        left_out=digest.left_out,
        members=[_runs(ranks) for ranks in shared.members],
        templates=[Collective(*values) for values in shared.templates],
        groups=list(shared.groups),
    )
    content = _encoder.encode(body)
    packed = zlib.compress(content, 9)
    head = _HEAD.pack(_MAGIC, *VERSION, len(packed), len(content), hashlib.sha256(packed).digest())
    return head + packed


def decode_digest(data: bytes, name: str) -> Digest:
    """The content of a file.

    Args:
        data: all of it.
        name: for messages.

    Raises:
        InputError: it is none, torn, damaged, or of a newer version.
    """
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        torn = _MAGIC.startswith(data[: len(_MAGIC)]) if len(data) < _HEAD.size else False
        raise InputError(f"{name} is {'torn: it was not written to its end' if torn else 'no digest'}", _NO_DIGEST)
    _, major, minor, nbytes, content_nbytes, checksum = _HEAD.unpack_from(data)
    if major > VERSION[0]:
        raise InputError(
            f"{name} is a digest of version {major}.{minor}, this pytracer reads {VERSION[0]}", "install a newer one"
        )
    body = memoryview(data)[_HEAD.size :]
    if len(body) < nbytes:
        raise InputError(f"{name} is torn: it has {len(body)} of {nbytes} bytes", "make it again, or copy it again")
    if len(body) > nbytes or hashlib.sha256(body).digest() != checksum:
        raise InputError(f"{name} is damaged: its checksum is wrong", "make it again, or copy it again")
    if content_nbytes > LARGEST:
        raise InputError(f"{name} announces {content_nbytes} bytes: it is not read", _NO_DIGEST)
    try:
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(body, content_nbytes + 1)
        if len(content) != content_nbytes:
            raise ValueError("its content has another size")
        return _restored(_decoder.decode(content))
    except (zlib.error, msgspec.MsgspecError, ValueError, IndexError, TypeError) as error:
        raise InputError(f"{name} is damaged: {error}", "make it again, or copy it again") from None


# ---- to the wire ----


class _Shared:
    """What is stored once for all processes."""

    def __init__(self) -> None:
        self.members: dict[tuple[int, ...], int] = {}
        self.templates: dict[tuple[Any, ...], int] = {}
        self.groups: dict[tuple[Group, int | None], int] = {}

    def group_ranges(self, groups: Iterable[Group]) -> list[tuple[int, int]]:
        """A rank records all groups that it helped to make, thousands of which are those of the other ranks."""
        found: list[tuple[int, int]] = []
        for group in groups:
            members = None if group.ranks is None else self.members.setdefault(group.ranks, len(self.members))
            number = self.groups.setdefault((dataclasses.replace(group, ranks=None), members), len(self.groups))
            if found and sum(found[-1]) == number:
                found[-1] = (found[-1][0], found[-1][1] + 1)
            else:
                found.append((number, 1))
        return found

    def call(self, item: Collective) -> _Call:
        values = [getattr(item, name) for name in _FIELDS]
        for place, name in zip(_PLACES, _VARYING, strict=True):
            values[place] = _BLANK.get(name)
        template = self.templates.setdefault(tuple(values), len(self.templates))
        called = item.scheduled_ns or 0
        return _Call(
            template, item.number, item.sequence_nr, _STATES.index(item.state), item.scheduled_ns,
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
    values["groups"] = shared.group_ranges(snapshot.groups)
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


# ---- from the wire ----


def _restored(body: _Digest) -> Digest:
    members = [Members(_expanded(runs)) for runs in body.members]
    templates = [[getattr(item, name) for name in _FIELDS] for item in body.templates]
    groups = [
        dataclasses.replace(group, ranks=members[number]) if number is not None else group
        for group, number in body.groups
    ]
    processes = []
    for item in body.processes:
        values = {name: getattr(item, name) for name in item.__struct_fields__}
        values["snapshot"] = _restored_snapshot(item.snapshot, groups, templates)
        processes.append(Process(**values))
    job = Job(
        body.directory,
        body.launcher,
        tuple(processes),
        body.damage,
        body.replaced_by_exec,
        more_launchers=body.more_launchers,
    )
    return Digest(job, body.pytracer, body.left_out)


def _expanded(runs: Iterable[tuple[int, int, int]]) -> list[int]:
    ranks: list[int] = []
    for first, step, count in runs:
        if not 0 < count <= 1 << 24 or len(ranks) + count > 1 << 24:
            raise ValueError("a group has too many members")
        ranks += range(first, first + step * count, step) if step else [first]
    return ranks


def _restored_snapshot(item: Any, groups: list[Group], templates: list[list[Any]]) -> Snapshot:
    values = {name: getattr(item, name) for name in item.__struct_fields__}
    values["facts"] = tuple(
        Fact(mono_ns, epoch, kind, _payload(tag, raw)) for mono_ns, epoch, kind, tag, raw in item.facts
    )
    values["events"] = tuple(
        Event(mono_ns, tid, thread, kind, _payload(tag, raw)) for mono_ns, tid, thread, kind, tag, raw in item.events
    )
    values["collectives"] = tuple(_collective(call, templates) for call in item.collectives)
    values["groups"] = tuple(group for first, count in item.groups for group in groups[first : first + count])
    values["storages"] = StorageTable.of(*item.storages)
    return Snapshot(**values)


def _payload(tag: str, raw: msgspec.Raw) -> Any:
    decoder = _payloads.get(tag)
    return decoder.decode(raw) if decoder is not None else journal.Uninterpreted(bytes(raw))


def _collective(call: _Call, templates: list[list[Any]]) -> Collective:
    values = list(templates[call.template])
    called = call.scheduled_ns or 0
    varying = (
        call.number, call.sequence_nr, _STATES[call.state], call.scheduled_ns,
        None if call.started is None else call.started + called,
        None if call.completed is None else call.completed + called,
        call.buffer_addr, call.storage_addr, call.output_addr, call.output_storage_addr, call.step, call.epoch,
        call.progress_unknown,
    )  # fmt: skip
    for place, value in zip(_PLACES, varying, strict=True):
        values[place] = value
    return Collective(*values)
