"""Memory of CUDA devices and CUDA graphs, as frozen data. Blocks of the caching allocator are `snapshot.Storage`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytracer.decode.snapshot import Who

Pool = tuple[int, int]  # torch's pool id: (0, 0) is the default pool, (n, 0) a CUDA graph's, (0, n) a MemPool's
DEFAULT_POOL: Pool = (0, 0)


@dataclass(frozen=True)
class DeviceSegment:
    """Memory that the allocator has from the driver. `live`: not given back before the process died.

    `mapped`: a mapped part of an expandable segment. `order` and `ended` number the events of all devices.
    """

    device: int
    base: int
    nbytes: int
    live: bool
    stream: int
    pool: Pool
    mapped: bool
    order: int
    ended: int | None


@dataclass(frozen=True)
class GraphInput:
    """Memory that a CUDA graph uses at every replay and did not allocate itself.

    `state` is "live", "freed", or "reallocated": `new_base` and `new_nbytes` lie there now. `freed_order`
    and `new_order` number the events of all devices.
    """

    base: int
    nbytes: int
    state: str
    allocated_by: Who
    freed_by: Who | None = None
    freed_ns: int | None = None
    new_base: int | None = None
    new_nbytes: int | None = None
    new_by: Who | None = None
    freed_order: int | None = None
    new_order: int | None = None


@dataclass(frozen=True)
class CudaGraph:
    """One capture of a torch.cuda.CUDAGraph, in the order of the captures.

    `state` is "capturing", "captured", "failed" or "reset". `broken_replays`: replays after an input was freed.
    `inputs_dropped`: inputs that found no room or that the allocator does not know.
    """

    number: int
    device: int
    state: str
    pool: Pool
    stream: int
    captured_by: Who
    captured_ns: int | None
    reset_by: Who | None
    reset_ns: int | None
    replays: int
    replayed_ns: int | None
    inputs: tuple[GraphInput, ...]
    inputs_dropped: int
    collectives: int
    broken_replays: int
    broken_replayed_ns: int | None
    broken_order: int | None  # last event of the devices before the last of these replays
    name: str | None = None


@dataclass(frozen=True)
class CudaStream:
    """A stream, and what the device said when it was last asked: "idle", "busy", "captured", "failed" or "unknown".

    `since_ns`: it has been so from then on, at least. `error`: the cudaError_t of a failure.
    """

    device: int
    stream: int
    state: str
    since_ns: int | None
    asked_ns: int | None
    error: int | None


@dataclass(frozen=True)
class OutOfMemoryUser:
    """A place in the program, and the live blocks that it had allocated."""

    who: Who
    nbytes: int
    count: int
    private_pool: bool


@dataclass(frozen=True)
class OutOfMemory:
    """A request that a device's allocator could not satisfy, and what its memory was used for at that moment."""

    mono_ns: int
    device: int
    wanted_nbytes: int
    free_nbytes: int
    live_nbytes: int
    awaited_nbytes: int
    segment_nbytes: int
    live_count: int
    segment_count: int
    who: Who
    users: tuple[OutOfMemoryUser, ...]
