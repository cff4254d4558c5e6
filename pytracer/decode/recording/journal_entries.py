"""Payloads of journal entries to the structs of `decode/types/journal.py`, and to plain data for `dump`."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import msgspec

from pytracer.blackbox import schema
from pytracer.blackbox import structures as raw
from pytracer.blackbox.codec import decode, layout_of
from pytracer.blackbox.schema import Entry
from pytracer.decode.formats.plain_json import load_json
from pytracer.decode.recording.notes import core_note, note_of
from pytracer.decode.types import journal as j
from pytracer.decode.types.host_counters import Usage

_MOST_STRINGS = 1 << 16  # of a command line or an environment
_UNKNOWN = (1 << 64) - 1
_STOPPED, _CONTINUED = 0x7F, 0xFFFF  # the low byte of a wait status; all of it
_CLD_EXITED, _CLD_KILLED, _CLD_DUMPED = 1, 2, 3
_T = TypeVar("_T")


def entry_name(kind: int) -> str:
    """The name of `schema.Entry`."""
    return Entry(kind).name if kind in _DECODERS else f"UNKNOWN_{kind}"


def decode_entry(kind: int, payload: bytes) -> j.Payload:
    """One payload.

    Raises:
        ValueError, struct.error, RecursionError, msgspec.MsgspecError: it is damaged.
    """
    decoder = _DECODERS.get(kind)
    return decoder(payload) if decoder else j.Uninterpreted(payload)


def plain_entry(kind: int, payload: bytes) -> object:
    """One payload that can be decoded, as plain data: all that was written, keys of newer versions included."""
    if kind in _JSON:
        return _json(payload)
    if kind in _LAYOUTS:
        return msgspec.structs.asdict(_padded(_LAYOUTS[kind], payload))
    data = decode_entry(kind, payload)
    if isinstance(data, (j.SeenGroup, j.SeenSignal, j.CppException)):
        return msgspec.structs.asdict(data)
    return msgspec.structs.astuple(data)[0]  # of the others it is all


# JSON


class _UnitParameter(msgspec.Struct):
    fqn: str
    numel: int | None = None
    shard_numel: int | None = None
    itemsize: int | None = None
    addr: int | None = None
    offset: int | None = None
    placements: list[str] | None = None


class _FlatShard(msgspec.Struct):
    addr: int | None = None
    numel: int | None = None
    itemsize: int | None = None


class _Unit(msgspec.Struct):
    """UNIT as FSDP1 and FSDP2 write it: each leaves out what the other has."""

    module: str
    unit: str
    wrapper: str
    parameters: list[_UnitParameter]
    generation: int | None = None
    world_size: int | None = None
    shard_rank: int | None = None
    replicas: int | None = None
    strategy: str | None = None
    flat: bool | None = None
    shard: _FlatShard | None = None


def _unit(payload: bytes) -> j.Unit:
    data = _convert(payload, _Unit)
    shard = data.shard or _FlatShard()
    parameters = tuple(
        j.UnitParameter(
            fqn=item.fqn,
            numel=item.numel or 0,
            shard_numel=item.shard_numel or 0,
            offset=item.offset or 0,
            addr=item.addr or 0,
            itemsize=item.itemsize or 0,
        )
        for item in data.parameters
    )
    return j.Unit(
        module=data.module or "?",
        fqn=data.unit,
        wrapper=data.wrapper or "?",
        flat=data.flat is True,
        world_size=data.world_size or 0,
        shard_rank=data.shard_rank or 0,
        shard_numel=(shard.numel or 0) if data.flat else sum(item.shard_numel for item in parameters),
        shard_addr=shard.addr or 0,
        shard_itemsize=shard.itemsize or 0,
        replicas=data.replicas or 0,
        parameters=parameters,
    )


def _buckets(payload: bytes) -> j.Buckets:
    data = _convert(payload, j.Buckets)
    return data if data.module else msgspec.structs.replace(data, module="?")


@lru_cache(maxsize=256)
def _group(payload: bytes) -> j.MadeGroup:
    """All ranks of a job record the same large groups: they share one list of members, which is hashed once."""
    data = _convert(payload, j.MadeGroup)
    return data if data.ranks is None else msgspec.structs.replace(data, ranks=j.Members(data.ranks))


def _checked(shape: type[_T]) -> Callable[[bytes], _T]:
    return lambda payload: _convert(payload, shape)


def _convert(payload: bytes, shape: type[_T]) -> _T:
    return msgspec.convert(_json(payload), shape)


def _json(payload: bytes) -> object:
    return load_json(payload.rstrip(b"\0"))


# Text and binary structures


def _strings(payload: bytes) -> tuple[str, ...]:
    parts = payload.split(b"\0", _MOST_STRINGS)[:_MOST_STRINGS]
    return tuple(p.decode("utf-8", "replace") for p in (parts[:-1] if parts[-1] == b"" else parts))


def _environment(payload: bytes) -> j.Environment:
    pairs = (text.partition("=") for text in _strings(payload) if "=" in text)
    return j.Environment({name: value for name, _, value in pairs})


def _child_status(payload: bytes) -> j.ChildStatus:
    """Wait status or siginfo to exit code or signal, see wait(2)."""
    data = _padded(raw.WaitEntry, payload)
    pid, status, code, mono_ns = data.pid, data.status, data.code, data.mono_ns
    if data.via_waitid:
        if code not in (_CLD_EXITED, _CLD_KILLED, _CLD_DUMPED):
            return j.ChildStatus(None)
        exited = code == _CLD_EXITED
        return j.ChildStatus(j.Wait(pid, status if exited else None, None if exited else status, mono_ns))
    if status & 0xFF == _STOPPED or status == _CONTINUED:
        return j.ChildStatus(None)
    signal = status & 0x7F or None
    usage = None
    if data.max_rss_kb != _UNKNOWN:
        usage = Usage(
            maxrss=data.max_rss_kb * 1024,
            user_seconds=data.user_us / 1e6,
            system_seconds=data.system_us / 1e6,
            major_faults=data.major_faults,
        )
    return j.ChildStatus(j.Wait(pid, None if signal else status >> 8 & 0xFF, signal, mono_ns, usage))


def _seen_signal(payload: bytes) -> j.SeenSignal:
    size = schema.SIGNAL_ENTRY.nbytes
    head = decode(raw.SignalEntry, payload)
    return j.SeenSignal(
        signal=head.signal,
        code=head.code,
        sender_pid=head.sender_pid,
        sender_uid=head.sender_uid,
        tid=head.tid,
        handled=bool(head.handled),
        sender_command=_strings(payload[size : size + head.command_nbytes]),
    )


def seen_group(payload: bytes) -> j.SeenGroup:
    """A GROUP_SEEN entry."""
    size = schema.GROUP_ENTRY.nbytes
    head = decode(raw.GroupEntry, payload)
    end = size + head.name_nbytes
    return j.SeenGroup(
        name=_text(payload[size:end]),
        description=_text(payload[end : end + head.description_nbytes]),
        size=head.size,
        rank=head.rank,
        backend=head.backend,
    )


def _cpp_exception(payload: bytes) -> j.CppException:
    size = schema.CPP_EXCEPTION_ENTRY.nbytes
    head = decode(raw.CppExceptionEntry, payload)
    end = size + head.type_nbytes
    return j.CppException(
        tid=head.tid,
        type=_text(payload[size:end]),
        what=_text(payload[end : end + head.what_nbytes]),
    )


def _text(payload: bytes) -> str:
    return payload.rstrip(b"\0").decode("utf-8", "replace")


def _padded(kind: type[_T], payload: bytes) -> _T:
    """Of an older recorder, fields at the end may be missing: all ones, "not known"."""
    return decode(kind, payload.ljust(layout_of(kind).nbytes, b"\xff"))


def _uninterpreted(kind: type[object]) -> Callable[[bytes], j.Uninterpreted]:
    def whole(payload: bytes) -> j.Uninterpreted:
        decode(kind, payload)
        return j.Uninterpreted(payload)

    return whole


_JSON: dict[int, Callable[[bytes], j.Payload]] = {
    Entry.VERSIONS: _checked(j.Versions),
    Entry.RANK: _checked(j.Rank),
    Entry.MODULE: _checked(j.Module),
    Entry.BUCKETS: _buckets,
    Entry.EXCEPTION: _checked(j.UncaughtException),
    Entry.THREAD_EXCEPTION: _checked(j.ThreadException),
    Entry.EXIT_REQUEST: _checked(j.ExitRequest),
    Entry.RENDEZVOUS: _checked(j.Rendezvous),
    Entry.GROUP: _group,
    Entry.UNIT: _unit,
    Entry.HOOK: _checked(j.Hook),
    Entry.WORKER: _checked(j.LoaderWorker),
    Entry.LOADER: _checked(j.Loader),
    Entry.DOING: _checked(j.Doing),
    Entry.GRAPH_REPLAY: _checked(j.GraphReplay),
}
_LAYOUTS: dict[int, type[msgspec.Struct]] = {
    Entry.CORE_NOTE: raw.CoreNoteEntry,
    Entry.WAIT: raw.WaitEntry,
    Entry.SIGNAL_SENT: raw.SignalSentEntry,
    Entry.DEVICE_OOM: raw.DeviceOomEntry,
    Entry.GUARD_DAMAGE: raw.GuardedStorage,
}
_DECODERS: dict[int, Callable[[bytes], j.Payload]] = {
    **_JSON,
    Entry.PROCESS: lambda payload: j.CommandLine(_strings(payload)),
    Entry.ENVIRONMENT: _environment,
    Entry.NOTE: lambda payload: note_of(_text(payload)),
    Entry.CORE_NOTE: lambda payload: core_note(_padded(raw.CoreNoteEntry, payload)),
    Entry.WAIT: _child_status,
    Entry.GROUP_SEEN: seen_group,
    Entry.SIGNAL_SEEN: _seen_signal,
    Entry.CPP_EXCEPTION: _cpp_exception,
    Entry.DEVICE_ASSERTION: lambda payload: j.DeviceAssertion(_text(payload).rstrip()),
    Entry.SIGNAL_SENT: _uninterpreted(raw.SignalSentEntry),
    Entry.DEVICE_OOM: _uninterpreted(raw.DeviceOomEntry),
    Entry.GUARD_DAMAGE: _uninterpreted(raw.GuardedStorage),
}
