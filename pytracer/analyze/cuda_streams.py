"""CUDA streams as the devices last told of them."""

from __future__ import annotations

from pytracer._words import hex_addr
from pytracer.analyze import report as r
from pytracer.analyze.clock import RunClock
from pytracer.decode.device_parts import CudaStream
from pytracer.decode.snapshot import Snapshot


def stream_reports(snapshot: Snapshot, clock: RunClock) -> list[r.CudaStream] | None:
    """All that the program used; None without CUDA."""
    found = [
        r.CudaStream(
            device=f"cuda:{item.device}",
            stream=hex_addr(item.stream),
            state=item.state,
            since=clock.relative(snapshot, item.since_ns),
            asked=clock.relative(snapshot, item.asked_ns),
            error=item.error,
        )
        for item in snapshot.cuda_streams
    ]
    return found or None


def failed_stream(snapshot: Snapshot) -> CudaStream | None:
    """The stream at which a device was first seen to have failed."""
    failed = [item for item in snapshot.cuda_streams if item.state == "failed"]
    return min(failed, key=lambda item: item.since_ns or 0, default=None)
