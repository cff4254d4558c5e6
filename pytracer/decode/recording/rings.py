"""Thread contexts and their rings of records."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from pytracer.blackbox import schema
from pytracer.blackbox import structures as raw
from pytracer.blackbox.codec import decode
from pytracer.blackbox.schema import RECORD_PAYLOAD, Record, Region
from pytracer.decode.recording.file import BoxFile, Extent
from pytracer.decode.recording.journal import Journal
from pytracer.decode.recording.storages import Threads
from pytracer.decode.types import records
from pytracer.decode.types.snapshot import Event, ThreadInfo

_HEADER = struct.Struct("<IHHQ")
_SOURCES = {1: "pytracer.step", 2: "optimizer steps"}
_WRAP = 1 << 32


class Rings:
    """Reads all thread contexts and records of a recording."""

    def __init__(self, box: BoxFile, journal: Journal) -> None:
        self._box, self._journal = box, journal
        self.threads = Threads()
        self.events: list[Event] = []
        self.torn_records = 0
        self.unknown_records = 0
        self.overwritten_records = 0
        rings = {e.first_thread: e for e in reversed(box.regions(Region.RECORDS, schema.RECORD_HEADER.nbytes))}
        for extent in box.regions(Region.THREADS, schema.THREAD.nbytes):
            self._chunk(extent, rings.get(extent.first_thread))
        self.events.sort(key=lambda e: e.mono_ns)

    def last_moments(self) -> Iterator[int]:
        """The time of each thread's last record, for a recording whose records were not read."""
        rings = {extent.first_thread: extent for extent in self._box.unread if extent.kind == Region.RECORDS}
        spans = []
        for heads in self._box.regions(Region.THREADS, schema.THREAD.nbytes):
            ring = rings.get(heads.first_thread)
            slots = ring.declared_count // heads.declared_count if ring and heads.declared_count else 0
            if ring is None or not slots:
                continue
            for i in range(heads.item_count):
                info = self.threads.by_index.get(heads.first_thread + i)
                if info is not None and info.record_count:
                    slot = i * slots + (info.record_count - 1) % slots
                    spans.append((ring.offset + slot * ring.item_bytes, _HEADER.size))
        for record in self._box.peek(spans):
            if len(record) == _HEADER.size and record[0:4] != bytes(4):
                yield _HEADER.unpack(record)[3]

    def _chunk(self, heads: Extent, ring: Extent | None) -> None:
        per_thread = ring.declared_count // heads.declared_count if ring and heads.declared_count else 0
        for i in range(heads.item_count):
            head = decode(raw.ThreadHead, self._box.data, heads.offset + i * heads.item_bytes)
            if head.tid == 0:
                continue
            index = heads.first_thread + i
            info = ThreadInfo(head.tid, head.name, head.pthread, bool(head.ended), head.record_count)
            self.threads.by_index[index] = info
            if head.generation > 1:
                self.threads.recycled.add(index)
            if ring is not None and per_thread:
                self._ring(info, head.first_record, ring, i * per_thread, per_thread)

    def _ring(self, info: ThreadInfo, own_from: int, extent: Extent, first: int, slots: int) -> None:
        """`own_from`: records before this count are of a thread that had the context earlier; their tid is 0."""
        self.overwritten_records += max(0, info.record_count - slots)
        for slot in range(min(slots, max(0, extent.item_count - first))):
            at = extent.offset + (first + slot) * extent.item_bytes
            order, kind, nbytes, mono_ns = _HEADER.unpack_from(self._box.data, at)
            if order == 0:
                # Never used, or its writer died while filling it.
                self.torn_records += slot < info.record_count or kind != 0
                continue
            age = (info.record_count - order) % _WRAP
            # One more than counted: the writer died between publishing and counting.
            in_ring = (order - 1) % slots == slot and (age <= slots or age == _WRAP - 1)
            if not in_ring or not _HEADER.size <= nbytes <= extent.item_bytes:
                self.torn_records += 1
                continue
            definition = RECORD_PAYLOAD.get(kind)
            if definition is None:
                self.unknown_records += 1
                continue
            payload = self._box.data[at + _HEADER.size : at + nbytes].ljust(definition.nbytes, b"\0")
            data = _record(kind, payload, self._journal)
            own = age == _WRAP - 1 or info.record_count - age > own_from
            tid, name = (info.tid, info.name) if own else (0, "an earlier thread")
            shown = Record.OP if kind == Record.DEVICE_OP else Record(kind)
            self.events.append(Event(mono_ns, tid, name, shown.name, data))


def _record(kind: int, payload: bytes, journal: Journal) -> records.Record:
    """Without padding, "none" values as None, tuples cut to what is set."""
    if kind in (Record.MARK, Record.SAMPLE):
        return records.Text(decode(raw.TextRecord, payload).text)
    if kind == Record.STEP:
        step = decode(raw.StepRecord, payload)
        return records.Step(step.step, _SOURCES.get(step.source))
    if kind == Record.STREAM:
        stream = decode(raw.StreamRecord, payload)
        return records.Stream(stream.action, stream.device, stream.stream, stream.event, stream.other_stream)
    if kind == Record.DEVICE_OP:
        return _device_op(decode(raw.DeviceOpRecord, payload), journal)
    node = decode(raw.NodeRecord, payload)
    return records.Node(
        name=node.name,
        sequence_nr=_number(node.sequence_nr),
        input_count=node.input_count,
        stream=node.stream if node.device else None,
        storages=tuple(addr for addr in node.storages if addr),
        device=node.device - 1 if node.device else None,
    )


def _device_op(op: raw.DeviceOpRecord, journal: Journal) -> records.Node:
    words = [word for word in op.storages if word]
    on_device = [word for word in words if not word & schema.DEVICE_OP_HOST]
    return records.Node(
        name=op.name,
        sequence_nr=_number(op.sequence_nr),
        input_count=op.input_count & ~schema.DEVICE_OP_ASYNCHRONOUS,
        stream=op.stream,
        storages=tuple(word for word in on_device if word != schema.DEVICE_OP_NO_MEMORY),
        device=(op.device & 0xFF) - 1,
        site=journal.site(op.site_id, op.site_where) if op.site_id else None,
        kernel=journal.kernel(op.device >> 8) if op.device >> 8 else None,
        host_storages=tuple(word & ~schema.DEVICE_OP_HOST for word in words if word & schema.DEVICE_OP_HOST),
        first_on_host=bool(words and words[0] & schema.DEVICE_OP_HOST),
        asynchronous=bool(op.input_count & schema.DEVICE_OP_ASYNCHRONOUS),
        without_memory=on_device.count(schema.DEVICE_OP_NO_MEMORY),
    )


def _number(sequence_nr: int) -> int | None:
    return sequence_nr if sequence_nr >= 0 else None
