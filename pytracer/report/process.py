"""The parts of the report about the state of one process: code, threads, memory. `job.py` is the whole.

Plain data like the rest: it imports nothing of ours.
"""

from __future__ import annotations

import msgspec


class Part(msgspec.Struct, kw_only=True, frozen=True):
    """Base of every part of the report: all fields are keywords and may be None, and nothing is changed afterwards."""


class PythonFrame(Part, frozen=True):
    """A place in Python code."""

    function: str | None = None
    file: str | None = None
    line: int | None = None


class SourceLine(Part, frozen=True):
    """A line of C, C++ or another compiled language, and the function that it belongs to."""

    function: str | None = None
    file: str | None = None
    line: int | None = None


class NativeFrame(Part, frozen=True):
    """A place in native code. `offset` is the ELF virtual address.

    `found` is "exact", "unwound", "frame-pointer" or "scanned". `lines`: where its image has debug information and the
    extra `symbols` is installed, functions inlined at that place, the innermost first, then the function itself.
    """

    image: str | None = None
    offset: str | None = None
    build_id: str | None = None
    function: str | None = None
    found: str | None = None
    lines: list[SourceLine] | None = None


class Origin(Part, frozen=True):
    """Who allocated or freed a storage. `caller` is the first Python frame outside torch, when it was recorded.

    `stack`: of guarded storages, innermost first.
    """

    time: int | None = None
    thread: str | None = None
    step: int | None = None
    python: PythonFrame | None = None
    caller: PythonFrame | None = None
    autograd_node: str | None = None
    op: str | None = None
    stack: list[PythonFrame] | None = None


class NamedTensor(Part, frozen=True):
    """A tensor with a name whose elements lie in a storage. `offset_bytes`: of the address in it, null when elsewhere.

    `how` is "handler" (it lay there when the process died) or "recorded" (it did when it was noted last).
    """

    name: str | None = None
    role: str | None = None
    offset_bytes: int | None = None
    how: str | None = None


class Holder(Part, frozen=True):
    """What may have held a storage: `expression` is a variable as seen in `python`, or an autograd node's class."""

    expression: str | None = None
    kind: str | None = None
    python: PythonFrame | None = None
    thread: str | None = None
    crashed_thread: bool | None = None


class StorageReport(Part, frozen=True):
    """The storage at or nearest to the fault address. `distance_bytes` is how far outside of it, 0 inside.

    `origin` is what kind of memory it lies in, `file` the mapped file or the name of the shared memory, `file_offset`
    where in it the storage begins. `older`: it was there before it was found, so `allocated` is unknown.
    `earlier` names older storages at the same address, the latest first. On a device: the `stream` that it was
    allocated for, the `pool` it came from (None: the default one), and whether the program has freed it and only other
    streams still need it (`awaited`).
    `found`: "exact" (by the crash handler), "register" (the faulting instruction formed the address from a pointer into
    it) or "guessed".
    """

    base: str | None = None
    nbytes: int | None = None
    offset_bytes: int | None = None
    distance_bytes: int | None = None
    device: str | None = None
    state: str | None = None
    names: list[str] | None = None
    allocated: Origin | None = None
    freed: Origin | None = None
    found: str | None = None
    earlier: list[str] | None = None
    stream: str | None = None
    pool: str | None = None
    awaited: bool | None = None
    origin: str | None = None
    file: str | None = None
    file_offset: int | None = None
    older: bool | None = None
    named: list[NamedTensor] | None = None
    holders: list[Holder] | None = None


class Bucket(Part, frozen=True):
    """The DDP bucket that lived in that storage; `parameter` is the one at the offset."""

    module: str | None = None
    index: int | None = None
    generation: int | None = None
    nbytes: int | None = None
    parameters: list[str] | None = None
    offset_bytes: int | None = None
    parameter: str | None = None


class Fsdp(Part, frozen=True):
    """What an FSDP unit used that storage for. `unit` is empty for the root; `state` is that of the unit at the end.

    `what`: "unsharded-parameter", "unsharded-flat-parameter", "unsharded-gradient", "local-shard", "local-flat-shard",
    "all-gather-input", "all-gather-output", "reduce-scatter-input", "reduce-scatter-output" or "all-reduce-buffer".
    `offset_bytes` is from the start of that tensor, `parameter_offset_bytes` from that of `parameter` in it: of the
    shard of the rank `shard_of_rank`, where shards lie side by side.
    """

    module: str | None = None
    unit: str | None = None
    wrapper: str | None = None
    what: str | None = None
    nbytes: int | None = None
    offset_bytes: int | None = None
    parameters: list[str] | None = None
    parameter: str | None = None
    parameter_offset_bytes: int | None = None
    shard_of_rank: int | None = None
    state: str | None = None


class CudaGraphUse(Part, frozen=True):
    """How a CUDA graph used the memory at the fault address."""

    id: int | None = None
    name: str | None = None
    pool: str | None = None
    captured_at: int | None = None
    replays: int | None = None
    role: str | None = None
    note: str | None = None
    captured_by: PythonFrame | None = None


class CudaGraph(Part, frozen=True):
    """A CUDA graph. `state` is "capturing", "captured", "failed" or "reset". `name`: of the compiled function.

    `inputs`: storages that it uses and did not allocate, `unknown_inputs` those that the allocator does not know.
    `broken_replays`: replays after one of them was freed; `broken_inputs` says which, in words.
    """

    id: int | None = None
    name: str | None = None
    device: str | None = None
    pool: str | None = None
    state: str | None = None
    captured_at: int | None = None
    captured_by: PythonFrame | None = None
    replays: int | None = None
    last_replay: int | None = None
    inputs: int | None = None
    unknown_inputs: int | None = None
    collectives: int | None = None
    broken_replays: int | None = None
    broken_inputs: list[str] | None = None


class CudaStream(Part, frozen=True):
    """A CUDA stream when the device was last asked (`asked`): "idle", "busy", "captured", "failed" or "unknown".

    It has been so since `since`, at least. `error` is the cudaError_t of a failure.
    """

    device: str | None = None
    stream: str | None = None
    state: str | None = None
    since: int | None = None
    asked: int | None = None
    error: int | None = None


class GpuPointer(Part, frozen=True):
    """A register or a parameter of a kernel that points into memory of a device; `found` says which."""

    found: str | None = None
    addr: str | None = None
    says: str | None = None


class GpuExceptionReport(Part, frozen=True):
    """Warps of a device that met the same exception at the same place. `pc_exact`: the device told the place itself.

    `function` lies at the pc, `offset` bytes before it; `kernel` is what was launched.
    """

    code: int | None = None
    name: str | None = None
    pc: str | None = None
    pc_exact: bool | None = None
    kernel: str | None = None
    function: str | None = None
    offset: int | None = None
    sm: int | None = None
    block: list[int] | None = None
    thread: list[int] | None = None
    grid: list[int] | None = None
    block_size: list[int] | None = None
    warps: int | None = None
    pointers: list[GpuPointer] | None = None


class GpuCoreReport(Part, frozen=True):
    """The core dump of a device that a process left. `problem`: why it could not be read, or not as a whole."""

    file: str | None = None
    device: str | None = None
    problem: str | None = None
    exceptions: list[GpuExceptionReport] | None = None


class MappingReport(Part, frozen=True):
    """The mapping that the fault address lies in; `file_size` is the file's size when the report was made.

    `offset` is where in the file the mapping begins. `file_size_at_crash` and `file_room_at_crash`, the bytes free on
    its file system, are what the crash handler saw.
    """

    path: str | None = None
    start: str | None = None
    end: str | None = None
    permissions: str | None = None
    file_size: int | None = None
    offset: int | None = None
    file_size_at_crash: int | None = None
    file_room_at_crash: int | None = None


class Thread(Part, frozen=True):
    """A thread: "main", "python", "autograd", "openmp", "gloo", "nccl-watchdog" or "native"."""

    tid: int | None = None
    name: str | None = None
    kind: str | None = None


class Region(Part, frozen=True):
    """The part of the process that an address lay in, storages aside. `says` names it: "the stack of thread x (12)".

    `kind`: "null", "non-canonical", "stack", "stack-guard", "image", "file-mapping", "shared-memory", "device-memory",
    "heap", "anonymous", "reserved", "kernel-page" or "unmapped". `offset` is in the file, or the ELF address in an
    image; `section` and `function` (any symbol) are read from the image on this machine when it is the same one.
    """

    kind: str | None = None
    says: str | None = None
    start: str | None = None
    end: str | None = None
    permissions: str | None = None
    path: str | None = None
    offset: int | None = None
    section: str | None = None
    function: str | None = None
    function_offset: int | None = None
    thread: Thread | None = None


class Neighbor(Part, frozen=True):
    """The nearest live storage on one side of an address: "below" or "above". `distance_bytes` is 1 right beside it."""

    side: str | None = None
    distance_bytes: int | None = None
    storage: StorageReport | None = None


class Operand(Part, frozen=True):
    """A register of the faulting instruction: its `role` is "base" or "index"; `says` completes "`register` ..."."""

    register: str | None = None
    role: str | None = None
    value: str | None = None
    scale: int | None = None
    kind: str | None = None
    says: str | None = None
    storage: StorageReport | None = None


class Fault(Part, frozen=True):
    """The access that failed. `kind` says what the address was; see docs/reference/report.md.

    `expression` is the address as the instruction forms it, e.g. "rdi + 0x18"; without a disassembler the only register
    close below the address, if there is one, and then `expression_found` is "guessed".
    """

    addr: str | None = None
    access: str | None = None
    size: int | None = None
    kind: str | None = None
    storage: StorageReport | None = None
    bucket: Bucket | None = None
    fsdp: Fsdp | None = None
    cuda_graph: CudaGraphUse | None = None
    mapping: MappingReport | None = None
    instruction: str | None = None
    expression: str | None = None
    expression_found: str | None = None
    says: str | None = None
    region: Region | None = None
    neighbors: list[Neighbor] | None = None
    earlier_lives: list[StorageReport] | None = None
    operands: list[Operand] | None = None


class StackBounds(Part, frozen=True):
    """The addresses of a thread's stack: from `low` up to, not including, `high`."""

    low: str | None = None
    high: str | None = None


class ThreadReport(Part, frozen=True):
    """A thread with its stacks, innermost frame first.

    `state` is "done" (a whole native stack was taken), "faulted" (it could not be walked to its end), "asked" or
    "walking" (the thread did not answer in time) or "listed" (no native stack was taken); None for the crashed thread.
    `frames_left_out` of `native_stack` lie before its last `frames_after_gap` ones.
    """

    tid: int | None = None
    name: str | None = None
    kind: str | None = None
    crashed: bool | None = None
    python_stack: list[PythonFrame] | None = None
    native_stack: list[NativeFrame] | None = None
    state: str | None = None
    frames_left_out: int | None = None
    frames_after_gap: int | None = None
    system_call: str | None = None
    stack: StackBounds | None = None


class AlsoCrashed(Part, frozen=True):
    """A thread that crashed while another one was being reported."""

    tid: int | None = None
    signal: str | None = None
    code: str | None = None
    addr: str | None = None
    pc: str | None = None
    time: int | None = None


class StackCycle(Part, frozen=True):
    """The frames that repeat on a deep stack, innermost first; `first` is their position in `native_stack`.

    `repeats` is how often, as far as the frames that were left out continue the cycle; `depth` counts all frames.
    """

    frames: list[NativeFrame] | None = None
    first: int | None = None
    repeats: int | None = None
    depth: int | None = None


class Pointer(Part, frozen=True):
    """What a register, or a word on the stack ("stack+0x18", from the stack pointer), points at.

    `says` completes the sentence "rdi ...". `names` are those of the storage, `found` is as in `storage`.
    """

    register: str | None = None
    addr: str | None = None
    says: str | None = None
    kind: str | None = None
    storage: StorageReport | None = None
    offset_bytes: int | None = None
    names: list[str] | None = None
    found: str | None = None


class MemoryBlock(Part, frozen=True):
    """Memory near the value of a register at the crash; `bytes` is hexadecimal and begins at `addr`."""

    register: str | None = None
    value: str | None = None
    addr: str | None = None
    bytes: str | None = None


class Image(Part, frozen=True):
    """The program or a shared object that was loaded at the crash."""

    path: str | None = None
    start: str | None = None
    end: str | None = None
    build_id: str | None = None


class MemoryRange(Part, frozen=True):
    """One line of the memory map at the crash; `offset` is where in the file it begins."""

    start: str | None = None
    end: str | None = None
    permissions: str | None = None
    offset: int | None = None
    path: str | None = None


class DataLoaderWorker(Part, frozen=True):
    """What a DataLoader worker was doing. `batch_indices` are words such as "0-3,7"; `loading`: it was not done."""

    worker_id: int | None = None
    num_workers: int | None = None
    dataset: str | None = None
    batch_samples: int | None = None
    batch_indices: str | None = None
    batch_started: int | None = None
    loading: bool | None = None


class GuardDamage(Part, frozen=True):
    """Bytes "behind" or "before" a guarded storage that somebody wrote.

    `found`: when, as the storage was freed or at the end. `offset_bytes` is that of the first one from the base of the
    storage, `changed_bytes` reach to the last one, `content` are the first 16, hexadecimal.
    """

    base: str | None = None
    nbytes: int | None = None
    side: str | None = None
    offset_bytes: int | None = None
    changed_bytes: int | None = None
    content: str | None = None
    found: int | None = None
    allocated: Origin | None = None
    freed: Origin | None = None


class GuardReport(Part, frozen=True):
    """What guard mode did in one process. `mechanism` is "markers" (MADV_GUARD_INSTALL) or "protection" (mprotect).

    `every`: one storage in so many. `unguarded`: storages that were chosen and went unguarded, by what was used up or
    refused: "bytes", "mappings", "records", "system". `not_quarantined`: freed storages that stayed accessible.
    """

    mechanism: str | None = None
    every: int | None = None
    min_bytes: int | None = None
    alignment: int | None = None
    side: str | None = None
    guarded: int | None = None
    live: int | None = None
    quarantined: int | None = None
    most_bytes: int | None = None
    budget_bytes: int | None = None
    budget_mappings: int | None = None
    unguarded: dict[str, int] | None = None
    not_quarantined: int | None = None
    damaged: list[GuardDamage] | None = None
