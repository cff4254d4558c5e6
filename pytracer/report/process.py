"""The parts of the report about the state of one process: code, threads, memory. `job.py` has the whole."""

from __future__ import annotations

import msgspec


class Part(msgspec.Struct, kw_only=True, frozen=True):
    """Base of every part of the report: all fields are keywords and may be None, and none is assigned afterwards."""


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
    """A place in native code."""

    image: str | None = None
    offset: str | None = None  #: ELF virtual address in the image
    build_id: str | None = None
    function: str | None = None
    found: str | None = None  #: "exact", "unwound", "frame-pointer" or "scanned"
    #: with debug information and the extra `symbols`: inlined functions, innermost first, then the function itself
    lines: list[SourceLine] | None = None


class Origin(Part, frozen=True):
    """The allocation or the free of a storage."""

    time: int | None = None  #: from a coarse timestamp; exact for guarded storages
    thread: str | None = None  #: its name; "thread 12" when it has no recorded name
    thread_name: str | None = None  #: null when it has no recorded name
    step: int | None = None  #: training step, as of `time`
    python: PythonFrame | None = None  #: innermost Python frame
    caller: PythonFrame | None = None  #: first Python frame outside torch, for large storages
    #: when only a library's line is recorded, and the crashed thread is at that line: the program's line below it; the
    #: storage may be older than this call
    now_below: PythonFrame | None = None
    autograd_node: str | None = None  #: node that was running
    op: str | None = None
    stack: list[PythonFrame] | None = None  #: of guarded storages, innermost first

    @property
    def place(self) -> PythonFrame | None:
        """The line to name: the first outside torch, else the innermost."""
        return self.caller or self.python


class NamedTensor(Part, frozen=True):
    """A named tensor whose elements lie in a storage."""

    name: str | None = None  #: fully qualified name, or the one given to `pytracer.name()`
    role: str | None = None  #: "parameter", "buffer", "gradient", "optimizer state" or "user"
    #: of the address in this tensor; null when the address lies elsewhere in the storage
    offset_bytes: int | None = None
    how: str | None = None  #: "handler": it lay there at the crash; "recorded": it did when names were last recorded


class Holder(Part, frozen=True):
    """A possible holder of a storage."""

    #: a variable as seen in `python`, e.g. `self.caches[1]`; of "saved" the class of an autograd node
    expression: str | None = None
    kind: str | None = None  #: "local", "cell", "global" or "saved"
    python: PythonFrame | None = None
    thread: str | None = None
    crashed_thread: bool | None = None


class StorageReport(Part, frozen=True):
    """The storage at an address, or the one nearest to it."""

    base: str | None = None
    nbytes: int | None = None
    offset_bytes: int | None = None  #: of the address from `base`
    #: of the address from the nearest byte of the storage: 0 inside, 1 right beside it
    distance_bytes: int | None = None
    device: str | None = None  #: "cpu" or "cuda:N"
    state: str | None = None  #: "live" or "freed"
    names: list[str] | None = None  #: all that is known of its use, the best first
    allocated: Origin | None = None  #: null when it was allocated before recording started
    freed: Origin | None = None
    #: "exact": by the crash handler; "register": the instruction formed the address from a pointer into it; "guessed":
    #: looked up later, or only the nearest; "guard": by guard mode
    found: str | None = None
    earlier: list[str] | None = None  #: names of older storages at the same address, the latest first
    stream: str | None = None  #: CUDA: stream it was allocated for
    pool: str | None = None  #: CUDA: its memory pool; null for the default pool
    awaited: bool | None = None  #: CUDA: the program has freed it and other streams still use it
    #: kind of memory: "cpu-allocator", "default-allocator", "torch-load", "before-enable", "pinned", "shared-memory",
    #: "mapped-file", "numpy", "buffer", "dlpack" or "blob"
    origin: str | None = None
    file: str | None = None  #: the mapped file, or the name of the shared memory
    file_offset: int | None = None  #: where in the file the storage begins
    older: bool | None = None  #: it existed before recording started
    named: list[NamedTensor] | None = None
    holders: list[Holder] | None = None  #: possible holders; null when nothing was searched, empty when none was found


class Bucket(Part, frozen=True):
    """The DDP bucket that lived in a storage."""

    module: str | None = None
    index: int | None = None
    generation: int | None = None  #: number of the layout of this DDP module
    nbytes: int | None = None
    parameters: list[str] | None = None
    offset_bytes: int | None = None
    parameter: str | None = None  #: the parameter at `offset_bytes`


class Fsdp(Part, frozen=True):
    """What an FSDP unit used a storage for."""

    module: str | None = None
    unit: str | None = None  #: name below the root module; empty for the root
    wrapper: str | None = None  #: "fully_shard" or "FullyShardedDataParallel"
    #: "unsharded-parameter", "unsharded-flat-parameter", "unsharded-gradient", "local-shard", "local-flat-shard",
    #: "all-gather-input", "all-gather-output", "reduce-scatter-input", "reduce-scatter-output" or "all-reduce-buffer"
    what: str | None = None
    nbytes: int | None = None
    offset_bytes: int | None = None  #: from the start of that tensor
    parameters: list[str] | None = None
    parameter: str | None = None  #: the parameter at the offset
    parameter_offset_bytes: int | None = None  #: from the start of `parameter`, or of its shard of `shard_of_rank`
    shard_of_rank: int | None = None  #: rank in the group, where shards of all ranks lie side by side
    state: str | None = None  #: "sharded" or "unsharded", at the end


class CudaGraphUse(Part, frozen=True):
    """How a CUDA graph used the memory at the fault address."""

    id: int | None = None
    name: str | None = None
    pool: str | None = None
    captured_at: int | None = None
    replays: int | None = None
    role: str | None = None  #: "static-input" or "pool-memory"
    note: str | None = None
    captured_by: PythonFrame | None = None


class CudaGraph(Part, frozen=True):
    """A CUDA graph."""

    id: int | None = None
    name: str | None = None  #: of the compiled function
    device: str | None = None
    pool: str | None = None
    state: str | None = None  #: "capturing", "captured", "failed" or "reset"
    captured_at: int | None = None
    captured_by: PythonFrame | None = None
    replays: int | None = None
    last_replay: int | None = None
    inputs: int | None = None  #: storages that it uses and did not allocate
    unknown_inputs: int | None = None  #: those of them that the allocator does not know
    collectives: int | None = None
    broken_replays: int | None = None  #: replays after an input was freed
    broken_inputs: list[str] | None = None  #: the freed inputs, described


class CudaStream(Part, frozen=True):
    """A CUDA stream, as of the last query."""

    device: str | None = None
    stream: str | None = None
    state: str | None = None  #: "idle", "busy", "captured", "failed" or "unknown"
    since: int | None = None  #: it has been in this state since then, at least
    asked: int | None = None  #: time of the last query
    error: int | None = None  #: cudaError_t of a failure


class GpuPointer(Part, frozen=True):
    """A pointer into device memory that a failing kernel held."""

    found: str | None = None  #: the register or kernel parameter
    addr: str | None = None
    says: str | None = None


class GpuAccess(Part, frozen=True):
    """The memory access of a thread of a device that explains an exception."""

    kind: str | None = None  #: "read", "write" or "update" (atomic)
    nbytes: int | None = None
    addr: str | None = None
    last_addr: str | None = None  #: set if it is only known that a thread accessed an address from `addr` to this one
    block: list[int] | None = None
    thread: list[int] | None = None
    found: str | None = None
    says: str | None = None


class GpuExceptionReport(Part, frozen=True):
    """Warps of a device that met the same exception at the same place."""

    code: int | None = None
    name: str | None = None
    pc: str | None = None
    pc_exact: bool | None = None  #: the place is that of the instruction; otherwise the thread was there later
    kernel: str | None = None  #: what was launched
    function: str | None = None  #: the function at `pc`
    offset: int | None = None  #: of `pc` in `function`
    source: str | None = None  #: file of the kernel's source, if it was compiled with lines
    line: int | None = None
    sm: int | None = None
    block: list[int] | None = None
    thread: list[int] | None = None
    grid: list[int] | None = None
    block_size: list[int] | None = None
    warps: int | None = None
    access: GpuAccess | None = None  #: null if it cannot be computed
    pointers: list[GpuPointer] | None = None


class GpuCoreReport(Part, frozen=True):
    """The core dump of a device (`run --gpu-core`)."""

    file: str | None = None
    device: str | None = None
    problem: str | None = None  #: why it could not be read, or not as a whole
    exceptions: list[GpuExceptionReport] | None = None


class MappingReport(Part, frozen=True):
    """The mapping at the fault address."""

    path: str | None = None
    start: str | None = None
    end: str | None = None
    permissions: str | None = None
    file_size: int | None = None  #: when the report was made
    offset: int | None = None  #: in the file, where the mapping begins
    file_size_at_crash: int | None = None  #: as the crash handler saw it
    file_room_at_crash: int | None = None  #: bytes free on the file's file system, as the crash handler saw them


class Doing(Part, frozen=True):
    """What a process was doing when it ended."""

    kind: str | None = None  #: "test" of pytest, "cell" of a notebook, or "epoch"
    text: str | None = None
    since: int | None = None  #: null when it is known from the Python stack


class Thread(Part, frozen=True):
    """A thread."""

    tid: int | None = None
    name: str | None = None
    kind: str | None = None  #: "main", "python", "autograd", "openmp", "gloo", "nccl-watchdog" or "native"


class Region(Part, frozen=True):
    """The part of the address space at an address, storages aside."""

    #: "null", "non-canonical", "stack", "stack-guard", "image", "file-mapping", "shared-memory", "device-memory",
    #: "heap", "anonymous", "reserved", "kernel-page", "guard-pool" or "unmapped"
    kind: str | None = None
    says: str | None = None  #: its description: "the stack of thread x (12)"
    start: str | None = None
    end: str | None = None
    permissions: str | None = None
    path: str | None = None
    offset: int | None = None  #: in the file, or the ELF address in an image
    section: str | None = None  #: from the image on this machine, if its build id is the recorded one
    function: str | None = None  #: any symbol, variables included; as `section`
    function_offset: int | None = None
    thread: Thread | None = None


class Neighbor(Part, frozen=True):
    """The nearest live storage on one side of an address."""

    side: str | None = None  #: "below" or "above"
    distance_bytes: int | None = None  #: 1 right beside it
    storage: StorageReport | None = None


class Operand(Part, frozen=True):
    """A register of the faulting instruction."""

    register: str | None = None
    role: str | None = None  #: "base" or "index"
    value: str | None = None
    scale: int | None = None
    kind: str | None = None  #: as `Fault.kind` or `Region.kind`
    says: str | None = None  #: completes "`register` ..."
    storage: StorageReport | None = None


class Fault(Part, frozen=True):
    """The access that failed."""

    #: as the kernel reported it; of a non-canonical address, computed from the instruction, or null
    addr: str | None = None
    access: str | None = None  #: "read", "write" or "execute"
    size: int | None = None
    #: "null", "near-null" (below 64 KiB), "non-canonical", "stack-guard", "in-storage", "past-storage",
    #: "before-storage", "freed-storage", "device-memory", "file-mapping", "image", "heap", "stack", "unmapped" or
    #: "none"
    kind: str | None = None
    storage: StorageReport | None = None
    bucket: Bucket | None = None
    fsdp: Fsdp | None = None
    cuda_graph: CudaGraphUse | None = None
    mapping: MappingReport | None = None
    instruction: str | None = None  #: with the values of its registers; null without the extra `disasm`
    expression: str | None = None  #: the address as the instruction forms it, e.g. "rdi + 0x18"
    #: "exact": from the instruction; "guessed": the only register close below the address
    expression_found: str | None = None
    says: str | None = None  #: completes "the address ..."
    region: Region | None = None
    neighbors: list[Neighbor] | None = None  #: nearest live storages
    earlier_lives: list[StorageReport] | None = None  #: storages that lay there before the last one, the latest first
    operands: list[Operand] | None = None


class MemorySpan(Part, frozen=True):
    """Something that lay near an address: a storage of either state, a guard of guard mode, or other memory."""

    #: "storage"; "guard": a page of guard mode beside a storage; "segment": memory that a device's allocator had from
    #: the driver; else as `Region.kind`
    kind: str | None = None
    start: str | None = None
    end: str | None = None
    state: str | None = None  #: of a storage or a segment: "live" or "freed"
    device: str | None = None
    names: list[str] | None = None  #: of a storage: all that is known of its use, the best first
    says: str | None = None  #: of other memory: what it is
    permissions: str | None = None
    allocated: Origin | None = None
    freed: Origin | None = None


class Neighborhood(Part, frozen=True):
    """What lay around the address that matters most in a process, to be drawn to scale."""

    addr: str | None = None
    what: str | None = None  #: "fault"; "cuda-graph-input": memory that a replayed CUDA graph used after it was freed
    spans: list[MemorySpan] | None = None  #: by address; at most 80. Freed storages may overlap others
    storages_left_out: int | None = None  #: recorded storages of the process that are not among `spans`


class OperatorTensor(Part, frozen=True):
    """A tensor that native code worked on at the crash, as the crash handler found it on the stack or in a register."""

    argument: str | None = None  #: its name in the operator's schema
    name: str | None = None  #: fully qualified name of a named tensor, else the Python variable
    passed: bool | None = None  #: true: an argument of the operator; false: a result, or a tensor of inner functions
    dtype: str | None = None
    sizes: list[int] | None = None  #: of the first 8 dimensions
    dimensions: int | None = None
    elements: int | None = None  #: 0: an empty tensor
    device: str | None = None
    base: str | None = None  #: of its storage; null when it has no memory
    undefined: bool | None = None
    #: smallest element; of integer tensors of at most 2**20 elements on the CPU, without `--no-values`
    minimum: int | None = None
    maximum: int | None = None  #: as `minimum`
    #: numbers that are NaN, of tensors of floats; a complex element is two. 0 is no proof: a crash may overwrite them
    nans: int | None = None
    infinite: bool | None = None  #: whether one is infinite, which is ordinary in a mask; as `nans`


class Operator(Part, frozen=True):
    """The operator that the crashed thread was running."""

    name: str | None = None  #: as in torch's schema, e.g. "aten::embedding"; of an extension, its function
    inside: str | None = None  #: the operator that it had called in turn
    found: str | None = None  #: "stack": by native functions; "records": by the last record of `--level ops`
    tensors: list[OperatorTensor] | None = None  #: possible ones: words of a stack may be stale
    says: str | None = None  #: the operator and its arguments in one line


class StackBounds(Part, frozen=True):
    """The addresses of a thread's stack: from `low` up to, not including, `high`."""

    low: str | None = None
    high: str | None = None


class ThreadReport(Part, frozen=True):
    """A thread with its stacks, innermost frame first."""

    tid: int | None = None
    name: str | None = None
    kind: str | None = None  #: as `Thread.kind`
    crashed: bool | None = None
    python_stack: list[PythonFrame] | None = None
    native_stack: list[NativeFrame] | None = None
    #: of `native_stack`: "done"; "faulted": incomplete; "asked", "walking": no answer in time; "listed": not taken;
    #: null for the crashed thread
    state: str | None = None
    frames_left_out: int | None = None  #: frames missing before the last `frames_after_gap` ones of `native_stack`
    frames_after_gap: int | None = None
    system_call: str | None = None  #: name, else number, of the one the thread was in
    stack: StackBounds | None = None  #: of the crashed thread


class AlsoCrashed(Part, frozen=True):
    """A thread that crashed while another crash was being recorded."""

    tid: int | None = None
    signal: str | None = None
    code: str | None = None
    addr: str | None = None
    pc: str | None = None
    time: int | None = None


class StackCycle(Part, frozen=True):
    """The recursion on a deep stack."""

    frames: list[NativeFrame] | None = None  #: frames that repeat, innermost first
    first: int | None = None  #: position of the cycle in `native_stack`
    repeats: int | None = None  #: assuming that the frames left out continue the cycle
    depth: int | None = None  #: number of all frames


class Pointer(Part, frozen=True):
    """The target of a register, or of a word on the stack."""

    register: str | None = None  #: a register, or "stack+0x18", from the stack pointer
    addr: str | None = None
    says: str | None = None  #: completes "`register` ..."
    kind: str | None = None  #: as `Fault.kind` or `Region.kind`
    storage: StorageReport | None = None
    offset_bytes: int | None = None
    names: list[str] | None = None  #: of the storage
    found: str | None = None  #: as `StorageReport.found`


class MemoryBlock(Part, frozen=True):
    """Memory near the value of a register at the crash."""

    register: str | None = None
    value: str | None = None
    addr: str | None = None
    bytes: str | None = None  #: hexadecimal, from `addr` on


class Image(Part, frozen=True):
    """The program or a shared object that was loaded at the crash."""

    path: str | None = None
    start: str | None = None
    end: str | None = None
    build_id: str | None = None


class MemoryRange(Part, frozen=True):
    """One line of the memory map at the crash."""

    start: str | None = None
    end: str | None = None
    permissions: str | None = None
    offset: int | None = None  #: in the file, where it begins
    path: str | None = None


class DataLoaderWorker(Part, frozen=True):
    """What a DataLoader worker was doing."""

    worker_id: int | None = None
    num_workers: int | None = None
    dataset: str | None = None
    batch_samples: int | None = None
    batch_indices: str | None = None  #: e.g. "0-3,7"; null for an iterable dataset
    batch_started: int | None = None
    loading: bool | None = None  #: false: that batch was done


class GuardDamage(Part, frozen=True):
    """Changed bytes beside a guarded storage."""

    base: str | None = None
    nbytes: int | None = None
    side: str | None = None  #: "behind" or "before"
    offset_bytes: int | None = None  #: of the first changed byte, from `base`
    changed_bytes: int | None = None  #: from the first to the last changed byte
    content: str | None = None  #: the first 16 changed bytes, hexadecimal
    found: int | None = None  #: when: at the free, or at the end of the process
    allocated: Origin | None = None
    freed: Origin | None = None


class GuardReport(Part, frozen=True):
    """Guard mode in one process."""

    mechanism: str | None = None  #: "markers" (MADV_GUARD_INSTALL) or "protection" (mprotect)
    every: int | None = None  #: one storage in this many
    min_bytes: int | None = None
    alignment: int | None = None
    side: str | None = None  #: "overrun" or "underrun"
    guarded: int | None = None
    live: int | None = None
    quarantined: int | None = None
    most_bytes: int | None = None
    budget_bytes: int | None = None
    budget_mappings: int | None = None
    #: chosen storages that went unguarded, by exhausted or refused resource: "bytes", "mappings", "records", "system"
    unguarded: dict[str, int] | None = None
    not_quarantined: int | None = None  #: freed storages that stayed accessible, because the kernel refused
    damaged: list[GuardDamage] | None = None
