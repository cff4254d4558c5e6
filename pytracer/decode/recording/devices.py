"""Blocks and segments of CUDA devices, CUDA graphs and their inputs, and failed requests.

Every event of the allocators has a number, and the crash handler recorded the last one before the crash: later events,
on threads that had not stopped yet, are undone here. So the result is the state at the crash.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from pytracer.blackbox import schema
from pytracer.blackbox import structures as raw
from pytracer.blackbox.codec import T, decode, layout, layout_of
from pytracer.blackbox.schema import BlockState, Entry, GraphState, InputState, Region, SegmentState, StreamState
from pytracer.decode.recording.file import BoxFile
from pytracer.decode.recording.journal import Journal
from pytracer.decode.recording.storages import Clock
from pytracer.decode.types.devices import (
    CudaGraph,
    CudaStream,
    DeviceSegment,
    GraphInput,
    OutOfMemory,
    OutOfMemoryUser,
    Pool,
)
from pytracer.decode.types.snapshot import CallSite, Storage

_SHOWN = struct.Struct("<IH")  # `order` and `state`, which begin every item
_ADDRESS_END = 1 << 64


class Devices:
    """Decodes everything about devices. `last`: number of the last event before the process died; None: not known."""

    def __init__(self, box: BoxFile, journal: Journal, clock: Clock, last: int | None) -> None:
        self._box, self._journal, self._clock = box, journal, clock
        self._last = last
        self.torn = 0

    def blocks(self) -> tuple[Storage, ...]:
        """Freed blocks, then live ones."""
        lives = [*self._items(Region.DEVICE_FREED, raw.DeviceBlock)]
        lives += self._items(Region.DEVICE_BLOCKS, raw.DeviceBlock)
        found: dict[tuple[int, int], Storage] = {}
        for life in lives:
            if life.addr + life.nbytes > _ADDRESS_END:
                self.torn += 1
            elif not self._is_later(life.alloc_sequence):
                # A writer that dies between the freed entry and the slot leaves both: the freed entry takes precedence.
                found.setdefault((life.addr, life.alloc_sequence), self._storage(life))
        return tuple(sorted(found.values(), key=lambda item: item.state == "live"))

    def segments(self) -> tuple[DeviceSegment, ...]:
        """All that are remembered, by address."""
        found = [self._segment(item) for item in self._items(Region.DEVICE_SEGMENTS, raw.DeviceSegment)]
        return tuple(sorted((item for item in found if not self._is_later(item.order)), key=lambda item: item.base))

    def graphs(self) -> tuple[CudaGraph, ...]:
        """In the order of their captures."""
        inputs: dict[int, list[GraphInput]] = {}
        for item in self._items(Region.GRAPH_INPUTS, raw.GraphInput):
            inputs.setdefault(item.graph, []).append(self._input(item))
        graphs = [self._graph(item, inputs) for item in self._items(Region.CUDA_GRAPHS, raw.CudaGraph)]
        return tuple(sorted(graphs, key=lambda graph: graph.number))

    def streams(self) -> tuple[CudaStream, ...]:
        """In the order in which they were first seen."""
        return tuple(
            CudaStream(
                device=item.device,
                stream=item.stream,
                state=_word(StreamState, item.state),
                since_ns=item.since_ns or None,
                asked_ns=item.asked_ns or None,
                error=item.error or None,
            )
            for item in self._items(Region.CUDA_STREAMS, raw.CudaStream)
        )

    def out_of_memory(self) -> tuple[OutOfMemory, ...]:
        """Requests that could not be satisfied, oldest first."""
        found = []
        for entry in self._journal.entries.values():
            if entry.kind == Entry.DEVICE_OOM and len(entry.payload) >= schema.DEVICE_OOM_ENTRY.nbytes:
                found.append(self._oom(entry.mono_ns, entry.payload))
        return tuple(found)

    def _items(self, region: Region, of: type[T]) -> Iterator[T]:
        size = layout_of(of).nbytes
        for extent in self._box.regions(region, size):
            shown = struct.Struct(f"<IH{extent.item_bytes - _SHOWN.size}x")
            for i, (order, state) in enumerate(self._box.unpack(extent, shown)):
                if order:
                    yield decode(of, self._box.data, extent.offset + i * extent.item_bytes)
                else:
                    self.torn += state != 0

    def _is_later(self, sequence: int) -> bool:
        """Whether an event was after the crash. Numbers wrap around."""
        return self._last is not None and sequence != 0 and 0 < (sequence - self._last) & 0xFFFFFFFF < 1 << 31

    def _storage(self, life: raw.DeviceBlock) -> Storage:
        site, moment = self._journal.site, self._clock.moment
        ended = life.free_sequence if not self._is_later(life.free_sequence) else 0
        freed = bool(ended) and life.state == BlockState.FREED
        return Storage(
            base=life.addr,
            nbytes=life.nbytes,
            state="freed" if freed else "live",
            allocated=moment(life.alloc_epoch),
            allocated_by=site(life.alloc_site_id, life.alloc_site_where),
            allocated_thread=life.alloc_tid or None,
            freed=moment(life.free_epoch) if ended else None,
            freed_by=site(life.free_site_id, life.free_site_where) if ended else None,
            freed_thread=life.free_tid or None if ended else None,
            order=(life.free_epoch, ended) if ended else (life.alloc_epoch, life.alloc_sequence),
            device=f"cuda:{life.device}",
            origin=None,
            stream=life.stream,
            pool=_pool(life),
            awaited=bool(ended) and not freed,
        )

    def _segment(self, item: raw.DeviceSegment) -> DeviceSegment:
        ended = item.end_sequence if item.state == SegmentState.GONE else 0
        live = not ended or self._is_later(ended)
        return DeviceSegment(
            device=item.device,
            base=item.addr,
            nbytes=item.nbytes,
            live=live,
            stream=item.stream,
            pool=_pool(item),
            mapped=bool(item.expandable),
            order=item.begin_sequence,
            ended=None if live else ended,
        )

    def _graph(self, item: raw.CudaGraph, inputs: dict[int, list[GraphInput]]) -> CudaGraph:
        reset = item.reset_ns or None
        return CudaGraph(
            number=item.number,
            device=item.device,
            state=_word(GraphState, item.state),
            pool=_pool(item),
            stream=item.stream,
            captured_by=self._journal.site(item.site_id, item.site_where),
            captured_ns=item.captured_ns or None,
            reset_by=self._journal.site(item.reset_site_id, item.reset_site_where) if reset else None,
            reset_ns=reset,
            replays=item.replays,
            replayed_ns=item.replayed_ns or None,
            inputs=tuple(inputs.get(item.number, ())),
            inputs_dropped=item.inputs_dropped,
            collectives=item.collectives,
            broken_replays=item.broken_replays,
            broken_replayed_ns=item.broken_replayed_ns or None,
            broken_order=item.broken_sequence or None,
            name=self._name(item.name_id),
            capture_order=item.capture_sequence,
        )

    def _name(self, number: int) -> str | None:
        entry = self._journal.entries.get(number * 8) if number else None
        return entry.payload.decode("utf-8", "replace") if entry and entry.kind == Entry.NAME else None

    def _input(self, item: raw.GraphInput) -> GraphInput:
        site, state = self._journal.site, item.state
        gone = state in (InputState.FREED, InputState.REALLOCATED) and not self._is_later(item.free_sequence)
        taken = gone and state == InputState.REALLOCATED and not self._is_later(item.new_sequence)
        return GraphInput(
            base=item.addr,
            nbytes=item.nbytes,
            state="reallocated" if taken else "freed" if gone else "live",
            allocated_by=site(item.alloc_site_id, item.alloc_site_where),
            freed_by=site(item.free_site_id, item.free_site_where) if gone else None,
            freed_ns=self._clock.moment(item.free_epoch).mono_ns if gone else None,
            new_base=item.new_addr if taken else None,
            new_nbytes=item.new_nbytes if taken else None,
            new_by=site(item.new_site_id, item.new_site_where) if taken else None,
            freed_order=item.free_sequence if gone else None,
            new_order=item.new_sequence if taken else None,
            kernel=self._journal.kernel(item.kernel) if item.kernel else None,
        )

    def _oom(self, mono_ns: int, payload: bytes) -> OutOfMemory:
        head, one = decode(raw.DeviceOomEntry, payload), layout(schema.DEVICE_OOM_USER)
        room = (len(payload) - schema.DEVICE_OOM_ENTRY.nbytes) // one.nbytes
        starts = range(schema.DEVICE_OOM_ENTRY.nbytes, len(payload), one.nbytes)
        users = [decode(raw.DeviceOomUser, payload, at) for at in starts[: min(room, head.user_count)]]
        return OutOfMemory(
            mono_ns=mono_ns,
            device=head.device,
            wanted_nbytes=head.wanted_nbytes,
            free_nbytes=head.free_nbytes,
            live_nbytes=head.live_nbytes,
            awaited_nbytes=head.awaited_nbytes,
            segment_nbytes=head.segment_nbytes,
            live_count=head.live_count,
            segment_count=head.segment_count,
            site=self._journal.site(head.site_id, head.site_where),
            users=tuple(OutOfMemoryUser(self._user(u), u.nbytes, u.count, bool(u.pool)) for u in users),
        )

    def _user(self, user: raw.DeviceOomUser) -> CallSite:
        return self._journal.site(user.site_id, user.site_where)


def _pool(item: raw.DeviceBlock | raw.DeviceSegment | raw.CudaGraph) -> Pool:
    return item.pool_graph, item.pool_number


def _word(enum: type[GraphState] | type[StreamState], number: int) -> str:
    try:
        return enum(number).name.lower()
    except ValueError:
        return f"unknown_{number}"
