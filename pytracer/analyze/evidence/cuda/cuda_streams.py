"""CUDA streams, as of the devices' last answers."""

from __future__ import annotations

from collections.abc import Sequence

from pytracer._text import hex_addr
from pytracer.analyze.timeline.clock import ProcessClock
from pytracer.decode.types.devices import CudaStream
from pytracer.decode.types.records import Node
from pytracer.decode.types.snapshot import Event
from pytracer.report import job as r

_WITH_STREAM = ("NODE", "OP", "RANGE_BEGIN", "RANGE_END")


def stream_reports(streams: Sequence[CudaStream], clock: ProcessClock) -> list[r.CudaStream] | None:
    """All that the program used; None without CUDA."""
    found = [
        r.CudaStream(
            device=f"cuda:{item.device}",
            stream=hex_addr(item.stream),
            state=item.state,
            since=clock.relative(item.since_ns),
            asked=clock.relative(item.asked_ns),
            error=item.error,
        )
        for item in streams
    ]
    return found or None


def current_stream(events: Sequence[Event], tid: int | None) -> r.CurrentStream | None:
    """The current CUDA stream of a thread's last record; without one, of any thread's."""
    found = [
        (event, event.data)
        for event in events
        if event.kind in _WITH_STREAM and isinstance(event.data, Node) and event.data.device is not None
    ]
    own = [item for item in found if item[0].tid == tid]
    if not found:
        return None
    last, node = (own or found)[-1]
    return r.CurrentStream(
        device=f"cuda:{node.device}",
        stream=hex_addr(node.stream or 0),
        record=f"{last.kind} {node.name}",
        thread=f"{last.thread} ({last.tid})",
        crashed_thread=tid is not None and last.tid == tid,
    )


def stream_words(current: r.CurrentStream) -> str:
    """`the default stream of cuda:0`, `stream 0x55d0.. of cuda:1`."""
    return f"{'the default stream' if current.stream == '0x0' else f'stream {current.stream}'} of {current.device}"


def name_of_stream(device: int, stream: int) -> str:
    """The same of numbers."""
    return f"{f'stream {hex_addr(stream)}' if stream else 'the default stream'} of cuda:{device}"


def failed_stream(streams: Sequence[CudaStream]) -> CudaStream | None:
    """The stream at which a device was first seen to have failed."""
    failed = [item for item in streams if item.state == "failed"]
    return min(failed, key=lambda item: item.since_ns or 0, default=None)
