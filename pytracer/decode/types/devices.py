"""Memory of CUDA devices, CUDA graphs and core dumps of devices, as frozen data.

Blocks of the caching allocator are `snapshot.Storage`.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from pytracer.decode.types.storages import DEFAULT_POOL as DEFAULT_POOL
from pytracer.decode.types.storages import CallSite
from pytracer.decode.types.storages import Pool as Pool


class DeviceSegment(msgspec.Struct, frozen=True):
    """Memory that the allocator has from the driver. `live`: not released before the process died.

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


class GraphInput(msgspec.Struct, frozen=True):
    """Memory that a CUDA graph uses at every replay and did not allocate itself.

    `state` is "live", "freed", or "reallocated": `new_base` and `new_nbytes` lie there now. `freed_order`
    and `new_order` number the events of all devices. `kernel`: mangled, the one that was captured first with it.
    """

    base: int
    nbytes: int
    state: str
    allocated_by: CallSite
    freed_by: CallSite | None = None
    freed_ns: int | None = None
    new_base: int | None = None
    new_nbytes: int | None = None
    new_by: CallSite | None = None
    freed_order: int | None = None
    new_order: int | None = None
    kernel: str | None = None


class CudaGraph(msgspec.Struct, frozen=True):
    """One capture of a torch.cuda.CUDAGraph, in the order of the captures.

    `state` is "capturing", "captured", "failed" or "reset". `broken_replays`: replays after an input was freed.
    `inputs_dropped`: inputs that did not fit or that the allocator does not know.
    """

    number: int
    device: int
    state: str
    pool: Pool
    stream: int
    captured_by: CallSite
    captured_ns: int | None
    reset_by: CallSite | None
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
    capture_order: int = 0  # last event of the devices before the capture


@dataclass(frozen=True)
class CudaStream:
    """A CUDA stream, as of the last query: "idle", "busy", "captured", "failed" or "unknown".

    `since_ns`: it has been in this state from then on, at least. `error`: the cudaError_t of a failure.
    """

    device: int
    stream: int
    state: str
    since_ns: int | None
    asked_ns: int | None
    error: int | None


class OutOfMemoryUser(msgspec.Struct, frozen=True):
    """A place in the program, and the live blocks that it had allocated."""

    site: CallSite
    nbytes: int
    count: int
    private_pool: bool


class OutOfMemory(msgspec.Struct, frozen=True):
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
    site: CallSite
    users: tuple[OutOfMemoryUser, ...]


TRAP = 0  # CUDBG_EXCEPTION_NONE: the device has no exception for it
# cudadebugger.h, CUDBGException_t
EXCEPTIONS = {
    TRAP: "trap",
    1: "lane illegal address",
    2: "lane user stack overflow",
    3: "device hardware stack overflow",
    4: "warp illegal instruction",
    5: "warp out-of-range address",
    6: "warp misaligned address",
    7: "warp invalid address space",
    8: "warp invalid pc",
    9: "warp hardware stack overflow",
    10: "device illegal address",
    11: "lane misaligned address",
    12: "warp assert",
    13: "lane syscall error",
    14: "warp illegal address",
    15: "lane non-migratable system atomic",
    16: "lane invalid system atomic",
    17: "cluster out-of-range address",
    18: "cluster block not present",
    19: "warp stack canary",
    20: "warp tensor memory access",
    21: "warp tensor memory leak",
    22: "warp call requires a newer driver",
}


class GpuThread(msgspec.Struct, frozen=True):
    """A thread of a device, and the address that it accessed."""

    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    addr: int


class GpuAccess(msgspec.Struct, frozen=True):
    """What the instruction of an exception did: "read", "write" or "update" (atomic) `nbytes` at an address per thread.

    Computed from the instruction and the registers of some warps. Which of the threads the device objected to is not
    recorded. `guarded`: nor which of them made the access at all, as their predicates have changed since.
    """

    kind: str
    nbytes: int
    threads: tuple[GpuThread, ...]
    guarded: bool = False


class GpuException(msgspec.Struct, frozen=True):
    """Warps that met the same exception at the same place; the first of their threads that did.

    `code` is TRAP for `__trap()` and failed assertions. `pc_exact`: the place is that of the instruction; otherwise the
    thread was there when it was stopped. `kernel` is None if the file has no image around it; `offset` is that of the
    pc in `function`; `file` and `line` are in the source. `block` and `thread` are None, and there are no `warps`, if
    these had ended.
    """

    code: int
    pc: int
    pc_exact: bool
    kernel: str | None
    function: str | None
    offset: int | None
    sm: int
    block: tuple[int, int, int] | None
    thread: tuple[int, int, int] | None
    grid: tuple[int, int, int] | None
    block_size: tuple[int, int, int] | None
    warps: int
    registers: tuple[int, ...]
    parameters: bytes
    file: str | None = None
    line: int | None = None
    access: GpuAccess | None = None

    @property
    def name(self) -> str:
        """As text."""
        return EXCEPTIONS.get(self.code, f"exception {self.code}")


@dataclass(frozen=True)
class GpuCore:
    """One file. `pid` and `host` are from its name. `problem`: why it could not be read, or not as a whole."""

    path: str
    host: str | None
    pid: int | None
    device: str | None = None
    exceptions: tuple[GpuException, ...] = ()
    problem: str | None = None


class GpuCoreWish(msgspec.Struct, frozen=True):
    """What `run --gpu-core` arranged: `file` is the user's own CUDA_COREDUMP_FILE, None for the run's own folder.

    `set`: variables that the launcher added for the job; `kept`: those that the user had set.
    """

    file: str | None = None
    set: dict[str, str] = msgspec.field(default_factory=dict)
    kept: dict[str, str] = msgspec.field(default_factory=dict)
