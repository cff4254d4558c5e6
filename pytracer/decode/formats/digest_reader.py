"""Reads digests (`digest.py`). What is equal in those of one job becomes one object: ranks differ little."""

from __future__ import annotations

import dataclasses
import hashlib
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, get_type_hints

import msgspec

from pytracer._errors import InputError
from pytracer.decode.formats.digest import (
    FIELDS,
    HEAD,
    LARGEST,
    MAGIC,
    NOTHING,
    OWN_SHAPES,
    PLACES,
    STATES,
    TAGGED,
    VERSION,
    Call,
    Digest,
    Groups,
    body_of,
    last_calls,
    shape,
)
from pytracer.decode.types.journal import Fact, Members, Uninterpreted
from pytracer.decode.types.snapshot import Collective, Crash, Event, Group, GroupList, Job, Process, Snapshot
from pytracer.decode.types.storage_table import StorageTable

_NO_DIGEST = "`pytracer digest RUN -o FILE` makes one"
_MOST_MEMBERS = 1 << 24
_MOST_KNOWN = 1 << 17  # values that are kept to be recognized again
# What many ranks have in common, by its bytes.
_ALIKE: dict[type, tuple[str, ...]] = {
    Snapshot: ("argv", "environment", "versions", "counts", "threads", "damage", "version"),
    Crash: (
        "native_stack", "python_stack", "python_threads", "mappings", "images", "threads", "steps_done",
        "code_pointers", "memory", "handled",
    ),
    Process: ("exception",),
}  # fmt: skip


def _alike(kind: type, **own: Any) -> Any:
    return shape(kind, **(dict.fromkeys(_ALIKE[kind], msgspec.Raw) | own))


_Crash = _alike(Crash)
_Snapshot = _alike(Snapshot, **OWN_SHAPES, crash=_Crash | None, live=_Crash | None, ending=_Crash | None)
_Process = _alike(Process, snapshot=_Snapshot)
_members_decoder = msgspec.msgpack.Decoder(list[list[tuple[int, int, int]]])
_made_decoder = msgspec.msgpack.Decoder(list[tuple[Group, int | None]])
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(body_of(_Process))
_values: dict[str, msgspec.msgpack.Decoder[Any]] = {
    **{name: msgspec.msgpack.Decoder(kind) for name, kind in TAGGED.items()},
    **{
        f"{kind.__name__}.{name}": msgspec.msgpack.Decoder(get_type_hints(kind)[name])
        for kind, names in _ALIKE.items()
        for name in names
    },
}


def decode_digest(data: bytes, name: str) -> Digest:
    """The content of one file; see `DigestReader.read`."""
    return DigestReader().read(data, name)


class DigestReader:
    """Reads the digests of one job, in any order.

    `in_all`: collectives that are kept of all ranks together, beside the open ones and the last one of each group, but
    at least `least` of each rank; None keeps all that were stored.
    """

    def __init__(self, in_all: int | None = None, least: int = 0) -> None:
        self._in_all = in_all
        self._least = least
        # By their bytes, and by what they are: values of other digests are recognized.
        self._by_runs: dict[tuple[tuple[int, int, int], ...], Members] = {}
        self._all_members: dict[bytes, list[Members]] = {}
        self._all_made: dict[tuple[bytes, tuple[int, ...]], tuple[Group, ...]] = {}
        self._parts: dict[tuple[int, tuple[tuple[int, int], ...]], tuple[Group, ...]] = {}
        self._known: dict[tuple[str, bytes], Any] = {}

    def read(self, data: bytes, name: str) -> Digest:
        """The content of a file.

        Args:
            data: all of it.
            name: for messages.

        Raises:
            InputError: it is none, torn, damaged, or of a newer version.
        """
        content = _content(data, name)
        try:
            return self._restored(_decoder.decode(content))
        except (msgspec.MsgspecError, ValueError, IndexError, TypeError) as error:
            raise InputError(f"{name} is damaged: {error}", "make it again, or copy it again") from None

    def _restored(self, body: Any) -> Digest:
        members = self._members(bytes(body.members))
        made = self._made(bytes(body.made), members)
        templates = [[getattr(item, name) for name in FIELDS] for item in body.templates]
        most = self._most(body)
        processes = []
        for item in body.processes:
            snapshot = self._snapshot(item.snapshot, _Groups(members, made), templates, most)
            processes.append(self._object(Process, item, snapshot=snapshot))
        job = Job(
            body.directory,
            body.launcher,
            tuple(processes),
            body.damage,
            body.replaced_by_exec,
            more_launchers=body.more_launchers,
        )
        return Digest(job, body.pytracer, body.left_out)

    def _most(self, body: Any) -> int | None:
        """Collectives of a rank that are kept: each digest knows how many ranks there are in all."""
        if self._in_all is None:
            return None
        ranks = max((item.world_size or 1 for item in body.processes), default=1)
        return max(self._least, self._in_all // max(1, ranks))

    def _members(self, raw: bytes) -> list[Members]:
        """Of all groups of a digest: mostly the same as of the last one, or some of them."""
        found = self._all_members.get(raw)
        if found is None:
            found = []
            for runs in _members_decoder.decode(raw):
                key = tuple(runs)
                if key not in self._by_runs:
                    self._by_runs[key] = Members(_expanded(key))
                found.append(self._by_runs[key])
            self._all_members[raw] = found
        return found

    def _made(self, raw: bytes, members: list[Members]) -> tuple[Group, ...]:
        key = (raw, tuple(map(id, members)))
        found = self._all_made.get(key)
        if found is None:
            found = self._all_made[key] = tuple(_with(members, *item) for item in _made_decoder.decode(raw))
        return found

    def _groups(self, item: Groups, of: _Groups) -> GroupList:
        key = (id(of.made), tuple(item.runs))
        made = self._parts.get(key)
        if made is None:
            made = tuple(group for first, count in item.runs for group in of.made[first : first + count])
            self._parts[key] = made
        own = {place: _with(of.members, group, number) for place, group, number in item.own}
        if any(not 0 <= place < len(made) for place in own):
            raise ValueError("a group is not among those that were made")
        return GroupList(made, own)

    def _snapshot(self, item: Any, groups: _Groups, templates: list[list[Any]], most: int | None) -> Snapshot:
        calls: Sequence[Call] = item.collectives
        if most is not None and len(calls) > most:
            groups_of = [values[_GROUP] for values in templates]
            calls = last_calls(
                calls, most, lambda call: call.state != _COMPLETED, lambda call: groups_of[call.template]
            )
        found: Snapshot = self._object(
            Snapshot,
            item,
            facts=tuple(
                Fact(mono_ns, epoch, kind, self._payload(tag, raw)) for mono_ns, epoch, kind, tag, raw in item.facts
            ),
            events=tuple(
                Event(mono_ns, tid, thread, kind, self._payload(tag, raw))
                for mono_ns, tid, thread, kind, tag, raw in item.events
            ),
            collectives=tuple(_collective(call, templates) for call in calls),
            groups=self._groups(item.groups, groups),
            storages=StorageTable.of(*item.storages),
            crash=self._crash(item.crash),
            live=self._crash(item.live),
            ending=self._crash(item.ending),
        )
        return found

    def _crash(self, item: Any) -> Crash | None:
        return None if item is None else self._object(Crash, item)

    def _object(self, kind: type, item: Any, **own: Any) -> Any:
        """The dataclass of a struct of `shape`."""
        values = {name: getattr(item, name) for name in item.__struct_fields__ if name not in own}
        for name in _ALIKE[kind]:
            if values[name] is NOTHING:
                del values[name]
            else:
                values[name] = self._value(f"{kind.__name__}.{name}", values[name])
        return kind(**values, **own)

    def _payload(self, tag: str, raw: msgspec.Raw) -> Any:
        return self._value(tag, raw) if tag in TAGGED else Uninterpreted(bytes(raw))

    def _value(self, name: str, raw: msgspec.Raw) -> Any:
        """Equal bytes are one object: nothing that is read is changed afterwards."""
        key = (name, bytes(raw))
        found = self._known.get(key, _UNKNOWN)
        if found is _UNKNOWN:
            found = _values[name].decode(raw)
            if len(self._known) < _MOST_KNOWN:
                self._known[key] = found
        return found


@dataclasses.dataclass(frozen=True)
class _Groups:
    """What a digest has of its groups."""

    members: list[Members]
    made: tuple[Group, ...]


def _with(members: Sequence[Members], group: Group, number: int | None) -> Group:
    return dataclasses.replace(group, ranks=members[number]) if number is not None else group


_UNKNOWN = object()
_GROUP = FIELDS.index("group")
_COMPLETED = STATES.index("completed")


def _content(data: bytes, name: str) -> bytes:
    if len(data) < HEAD.size or not data.startswith(MAGIC):
        torn = MAGIC.startswith(data[: len(MAGIC)]) if len(data) < HEAD.size else False
        raise InputError(f"{name} is {'torn: it was not written to its end' if torn else 'no digest'}", _NO_DIGEST)
    _, major, minor, nbytes, content_nbytes, checksum = HEAD.unpack_from(data)
    if major > VERSION[0]:
        raise InputError(
            f"{name} is a digest of version {major}.{minor}, this pytracer reads {VERSION[0]}", "install a newer one"
        )
    body = memoryview(data)[HEAD.size :]
    if len(body) < nbytes:
        raise InputError(f"{name} is torn: it has {len(body)} of {nbytes} bytes", "make it again, or copy it again")
    if len(body) > nbytes or hashlib.sha256(body).digest() != checksum:
        raise InputError(f"{name} is damaged: its checksum is wrong", "make it again, or copy it again")
    if content_nbytes > LARGEST:
        raise InputError(f"{name} announces {content_nbytes} bytes: it is not read", _NO_DIGEST)
    try:
        content = zlib.decompressobj().decompress(body, content_nbytes + 1)
        if len(content) != content_nbytes:
            raise ValueError("its content has another size")
    except (zlib.error, ValueError) as error:
        raise InputError(f"{name} is damaged: {error}", "make it again, or copy it again") from None
    return content


def _expanded(runs: Iterable[tuple[int, int, int]]) -> list[int]:
    ranks: list[int] = []
    for first, step, count in runs:
        if not 0 < count <= _MOST_MEMBERS or len(ranks) + count > _MOST_MEMBERS:
            raise ValueError("a group has too many members")
        ranks += range(first, first + step * count, step) if step else [first]
    return ranks


def _collective(call: Call, templates: list[list[Any]]) -> Collective:
    values = list(templates[call.template])
    called = call.scheduled_ns or 0
    varying = (
        call.number, call.sequence_nr, STATES[call.state], call.scheduled_ns,
        None if call.started is None else call.started + called,
        None if call.completed is None else call.completed + called,
        call.buffer_addr, call.storage_addr, call.output_addr, call.output_storage_addr, call.step, call.epoch,
        call.progress_unknown,
    )  # fmt: skip
    for place, value in zip(PLACES, varying, strict=True):
        values[place] = value
    return Collective(*values)
