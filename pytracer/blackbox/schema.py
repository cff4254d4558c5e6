"""THE definition of the black box format.

Every structure, region, record and journal entry of the file is declared here, once. Python decodes from this
module (`codec.py`); `csrc/blackbox/layout.h` and the tables in `docs/reference/blackbox.md` are generated from it by
`scripts/gen_layout.py` and compared in `make lint`.

All values are little-endian, of fixed width and naturally aligned; padding is explicit. Numbers are never reused.
A new field or kind raises MINOR; a new meaning raises MAJOR.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

MAGIC = b"\x89pytrc\r\n"
MAJOR = 1
# 1: notes have codes. 2: HOLDERS has tensors without memory, and elements. 3: notes of the core are CORE_NOTE. 4: ARGUMENTS, RENDEZVOUS
# 5: SIGNAL_SENT, the process group. 6: CRASH, the call that unmapped the memory. 7: HOLDERS has whole numbers
# 8: STORAGE_HITS has storages behind which the heap is overwritten. 9: DEVICE_OP, in place of OP in a process that uses CUDA; waits of
# the host for a device. 10: DEVICE_ASSERTION, KERNEL. 11: ARGUMENTS, numbers that are not finite. 12: HOLDERS, offsets
# 13: HOLDERS, values of a process that was asked to end
MINOR = 13

HEADER_BYTES = 8192
REGION_LIMIT = 120
RECORD_BYTES = 128
RECORDS_PER_THREAD = 256
COLLECTIVES = 1024
SCOPED_TENSORS = 8192
EXTERNAL_ALLOCATIONS = 4096
FREED_PER_THREAD = 1024  # first half: small storages, second half: large ones
THREADS_PER_CHUNK = 16
LARGE_STORAGE_BYTES = 128 * 1024
STORAGE_SLOTS_LOG2 = 16
EPOCH_SLOTS = 16384
DEVICE_BLOCK_SLOTS_LOG2 = 15
DEVICE_FREED = 4096
DEVICE_SEGMENTS = 8192
CUDA_GRAPHS = 1024
GRAPH_INPUTS = 16384
CUDA_STREAMS = 128
JOURNAL_BYTES = 2 * 1024 * 1024
JOURNAL_MAGIC = 0x4A45
# sigqueue(pid, REQUEST_SIGNAL, REQUEST_VALUE) requests the stacks of all threads of a running process.
REQUEST_SIGNAL = 60
# "on_its_way" of an EXCEPTION that a DataLoader worker hands over to the process that reads from the loader, and goes on.
ON_FETCH = "fetch"
# The same of the thread that sends what was put into a multiprocessing queue: it drops the object, and goes on.
ON_PUT = "put"
# The same of a task of concurrent.futures: its Future keeps the exception until somebody asks for the result.
ON_TASK = "task"
# The same of a worker process that caught the exception and printed it, or made its text.
ON_PRINT = "print"
REQUEST_VALUE = 0x70795472
JOURNAL_FIRST = 8  # offset of the first entry: id 0 means unknown

# A storage's key word: [63:48] low bits of the thread's sequence number, [47:6] address, [5:2] Origin, [1:0] state.
KEY_ADDR_MASK = 0x0000_FFFF_FFFF_FFC0
KEY_STATE_MASK = 0x3
KEY_ORIGIN_SHIFT = 2
KEY_ORIGIN_MASK = 0xF
KEY_EMPTY, KEY_BUSY, KEY_LIVE = 0, 1, 2

# In a DeviceOpRecord: what is added to its numbers, or stands for them.
DEVICE_OP_HOST = 1 << 63
DEVICE_OP_NO_MEMORY = 1
DEVICE_OP_ASYNCHRONOUS = 1 << 31

# `site_id`: 0 is unknown; otherwise the offset of a journal entry (CODE, NODE, SITE or STACK) divided by 8.


class State(IntEnum):
    """`FileHeader.state`: the state of the process when the file was last written."""

    CREATING = 0
    RECORDING = 1
    DISABLED = 2
    EXITING = 3
    CRASHED = 4


class Region(IntEnum):
    """What a region of the file holds; `RegionEntry.kind`."""

    JOURNAL = 1
    EPOCHS = 2
    THREADS = 3
    RECORDS = 4
    FREED_STORAGES = 5
    STORAGES = 6
    COLLECTIVES = 7
    SCOPED_TENSORS = 12
    EXTERNAL_ALLOCATIONS = 8
    CRASH = 16
    NATIVE_FRAMES = 17
    PYTHON_THREADS = 18
    PYTHON_FRAMES = 19
    IMAGES = 20
    STORAGE_HITS = 21
    ALSO_CRASHED = 22
    ARENA = 23
    MAPS = 24
    MEMORY = 25
    THREAD_STACKS = 26
    THREAD_FRAMES = 27
    DEVICE_BLOCKS = 48
    DEVICE_FREED = 49
    DEVICE_SEGMENTS = 50
    CUDA_GRAPHS = 51
    GRAPH_INPUTS = 52
    CUDA_STREAMS = 53
    GUARD = 40
    GUARDED = 41
    NAMES = 44
    HOLDERS = 45
    ARGUMENTS = 46


class Origin(IntEnum):
    """The origin of a storage's memory. Below 16: in the table of live storages; the others: in EXTERNAL_ALLOCATIONS.

    BEFORE_ENABLE: of the CPU allocator, allocated before recording started.
    """

    CPU_ALLOCATOR = 0  # the registered CPU allocator: torch's own, or one of the program's
    DEFAULT_ALLOCATOR = 1  # torch's own, used by torch.UntypedStorage although the program registered another one
    BEFORE_ENABLE = 2
    PINNED = 3  # torch's host allocator for CUDA; a freed one stays in torch's cache
    SHARED_MEMORY = 16
    MAPPED_FILE = 17
    NUMPY = 18
    BUFFER = 19
    DLPACK = 20
    BLOB = 21


class ExternalState(IntEnum):
    """`ExternalAllocation.state`; stored last."""

    EMPTY = 0
    BUSY = 1
    LIVE = 2
    FREED = 3


class Record(IntEnum):
    """The kind of a record of a thread's ring; `RecordHeader.kind`. 32 to 34 were never released."""

    MARK = 1
    STEP = 2
    SAMPLE = 3
    NODE = 16
    RANGE_BEGIN = 17
    RANGE_END = 18
    OP = 19
    DEVICE_OP = 20
    STREAM = 24


class Entry(IntEnum):
    """The kind of a journal entry; `EntryHeader.kind`. Entries are never overwritten."""

    PROCESS = 1  # argv, NUL-separated, as in /proc/self/cmdline
    ENVIRONMENT = 2  # allow-listed NAME=VALUE, NUL-separated
    NOTE = 3  # text: [code] and what could not be recorded; see note_codes.py. Without a code: minor version 0, and the core below 3
    WAIT = 4  # WaitEntry: a child's end, as this process observed it
    CORE_NOTE = 5  # CoreNoteEntry: what the core could not record, as a number with data
    CODE = 16  # CodeEntry + qualified name + file name + line table
    NODE = 17  # name of an autograd node's class
    SITE = 18  # SiteEntry: innermost call site and the first one outside torch and pytracer
    STACK = 24  # StackEntry + its call sites (StackPlace): where a guarded storage was allocated or freed
    VERSIONS = 32  # JSON {"python","torch","cuda","pytracer"}
    RANK = 33  # JSON {"rank","local_rank","world_size","backend","init"}; with "left": it begins to leave the job
    # JSON {"module","class","wrapper","tensors":[{"fqn","role","addr","nbytes","dtype","shape","storage_addr","storage_nbytes"}],
    # "settings","caller"}: options of DistributedDataParallel that decide what it communicates, and the line that wrapped it
    MODULE = 34
    BUCKETS = 35  # JSON {"module","generation","has_rebuilt","buckets":[{"index","addr","nbytes","parameters":[{"fqn","offset_bytes","nbytes"}]}]}
    # JSON {"type","message","thread","python_stack":[{"function","file","line"}]}, innermost first; "on_its_way": what ran
    # before it reached the top. "context": what was being handled when it was raised, each with "type", "message" and
    # "python_stack", newest first, the first of the program with what "variables" to "outer" say, too; "remote_traceback": the text that a process of a pool sent with it. "variables": of the
    # innermost frame of the program, [{"name","value"}], `[2, 3] float32`, `list of 4`, `None`, `7`; "columns": line, column,
    # last line and end, in bytes, of the expression that failed there. "near": [{"of","names","count"}], the keys, attributes
    # or parameters that there were in place of a missing one; "count" of all keys. "outer": [{"frame","variables"}], variables of
    # the program's frames around it, and of the function of torch's that raised it; "frame" is the place in "python_stack".
    # "outermost": of a stack of "frame_count" frames, deeper than that, its other end. "warnings":
    # [{"category","message","file","line"}], what Python had warned of before in modules of the program and of torch.
    EXCEPTION = 36
    THREAD_EXCEPTION = 47  # as EXCEPTION, with "tid" of the thread, not the process, that it ended
    # JSON {"status","message","python_stack","context"} as in EXCEPTION: the main thread called sys.exit() or made a SystemExit.
    # It may have been caught; "message" of a text alone; "context": what the program was handling, for a status other than 0.
    EXIT_REQUEST = 49
    GROUP = 37  # JSON {"name","description","backend","ranks"}; {"begun","description","ranks","caller"} before
    # JSON {"rank","world_size","local_rank","master_addr","master_port","file","passed","caller"}: init_process_group() was
    # called with these, from the environment or, the `passed` ones, as arguments. RANK follows when it returns.
    RENDEZVOUS = 43
    GROUP_SEEN = 39  # GroupEntry + name + description: a process group that ran a collective
    SIGNAL_SEEN = 41  # SignalEntry + command line of the sender, NUL-separated: a termination signal
    SIGNAL_SENT = 44  # SignalSentEntry + path of the caller's image: this process sends a signal to another one, or ends itself by SIGKILL
    CPP_EXCEPTION = 38  # CppExceptionEntry + demangled type + what(): std::terminate() was called
    WORKER = 40  # JSON {"worker_id","num_workers","seed","dataset"}: this process is a worker of a DataLoader
    DEVICE_OOM = 48  # DeviceOomEntry + DeviceOomUser[]: a caching allocator could not satisfy a request
    KERNEL = 52  # text: the mangled name of a kernel, for DeviceOpRecord
    DEVICE_ASSERTION = 51  # text: what the CUDA driver prints of an assertion that failed in a kernel
    SCOPE = 60  # text: what a thread was doing when it called collectives, e.g. `FSDP::all_gather (layers.0)`
    # JSON {"module","unit","generation","wrapper","world_size","shard_rank","replicas","parameters"}: an FSDP unit.
    # fully_shard: "parameters":[{"fqn","numel","shard_numel","itemsize","addr","placements"}], in the order of its operators.
    # FSDP1, "flat": also "strategy","shard":{"addr","numel","itemsize"}; "parameters":[{"fqn","offset","numel"}], in elements.
    UNIT = 61
    HOOK = 62  # JSON {"module","hook"}: a communication hook of a DDP module
    # JSON {"kind","text"}: what the process does from now on. "test": of pytest; "cell": of a notebook, with "file", which
    # its frames have, and "source"; "epoch": of a training loop; "name": what the process is; "async_save": torch's was called, with "file",
    # "line" and "function".
    DOING = 46
    GRAPH_REPLAY = 63  # JSON {"graph","file","line","function"}: a line that replays a CUDA graph after an input of it was freed
    NAME = 50  # text: a component of a name, e.g. "weight"; NAMES refers to it
    GUARD_DAMAGE = 56  # GuardedStorage: bytes beside a guarded storage had changed when it was freed
    LOADER = 42  # JSON {"dataset","iterable","sampler","distributed","plain","initialized","samples","batch_size","drop_last","batches","at"}: a DataLoader was created


class CoreNote(IntEnum):
    """`CoreNoteEntry.code`: what the core could not do. The reader has the sentences."""

    STORAGE_TABLE_FULL = 1  # the table of live storages cannot grow; value: its slots
    SANDBOXED = 2  # the program confines itself by seccomp; value: SECCOMP_MODE_STRICT or SECCOMP_MODE_FILTER
    GUARD_WRONG_FREE = 3  # a guarded storage was freed a second time, or by an address inside of it; addr: that address
    GUARD_PROTECTION = 4  # the kernel refuses MADV_GUARD_INSTALL from now on; value: errno


class Step(IntEnum):
    """The crash handler's steps, in order; bit numbers of `CrashHeader.steps_done` and `.steps_faulted`.

    NAMES, HOLDERS and ARGUMENTS run after LOADED_IMAGES. OTHER_THREADS follows the previous handler: it disturbs threads, so
    the process must be certain to die.
    """

    SIGNAL = 0
    AUTOGRAD_NODE = 1
    PYTHON_STACK = 2
    STORAGE_LOOKUP = 3
    NATIVE_STACK = 4
    NATIVE_FALLBACK = 5
    IMAGES = 6
    MAPS = 7
    WORDS = 8
    FAULT_FILE = 9
    MEMORY = 10
    LOADED_IMAGES = 11
    OTHER_THREADS = 12
    NAMES = 13
    HOLDERS = 14
    ARGUMENTS = 15


class ThreadsHow(IntEnum):
    """`CrashHeader.threads_how`: how the stacks of the other threads were taken."""

    NONE = 0
    HELPER = 1
    SIGNAL = 2


class HelperState(IntEnum):
    """`CrashHeader.helper_state`: how far a dying process's request to the launcher's helper got."""

    NONE = 0
    ASKED = 1
    STOPPED = 2
    RELEASE = 3
    RELEASED = 4
    REFUSED = 5
    HOLD = 6


class Level(IntEnum):
    """How much is recorded (`--level`, PYTRACER_LEVEL, by lower-case name); each level includes those before it."""

    LIGHT = 0
    DEFAULT = 1
    OPS = 2


class CollectiveState(IntEnum):
    """`CollectiveSlot.state`: how far a collective got, as this process observed it."""

    SCHEDULED = 1
    STARTED = 2
    COMPLETED = 3
    FAILED = 4


class BlockState(IntEnum):
    """`DeviceBlock.state`. AWAITED: freed by the program; the allocator keeps it until other CUDA streams have used it."""

    EMPTY = 0
    LIVE = 1
    AWAITED = 2
    FREED = 3


class SegmentState(IntEnum):
    """`DeviceSegment.state`."""

    EMPTY = 0
    LIVE = 1
    GONE = 2


class GraphState(IntEnum):
    """`CudaGraph.state`."""

    EMPTY = 0
    CAPTURING = 1
    CAPTURED = 2
    FAILED = 3
    RESET = 4


class InputState(IntEnum):
    """`GraphInput.state`: the state of memory that a CUDA graph uses and did not allocate."""

    EMPTY = 0
    LIVE = 1
    FREED = 2
    REALLOCATED = 3


class StreamState(IntEnum):
    """`CudaStream.state`: the state that the device last reported."""

    UNKNOWN = 0
    IDLE = 1
    BUSY = 2
    CAPTURED = 3
    FAILED = 4


class StreamAction(IntEnum):
    """`StreamRecord.action`."""

    EVENT_RECORDED = 1
    WAITS_FOR_EVENT = 2
    WAITS_FOR_STREAM = 3
    HOST_WAITS = 4
    HOST_WAITED = 5
    HOST_WAITED_FOR_DEVICE = 6


class TensorRole(IntEnum):
    """`ScopedTensor.role`: what FSDP used the tensor for."""

    UNSHARDED_PARAMETER = 1
    UNSHARDED_GRADIENT = 2


class StackState(IntEnum):
    """`ThreadStack.state`: how far the stack of one other thread was taken; stored last."""

    LISTED = 0
    ASKED = 1
    WALKING = 2
    DONE = 3
    FAULTED = 4


class NameRole(IntEnum):
    """`NameSlot.role`: the kind of named object."""

    MODULE = 1
    PARAMETER = 2
    BUFFER = 3
    STATE = 4  # of an optimizer; `parent` is the parameter
    USER = 5  # pytracer.name()


class HolderKind(IntEnum):
    """`Holder.kind`: how a tensor was reached when the process died."""

    LOCAL = 1
    CELL = 2
    GLOBAL = 3
    SAVED = 4  # an autograd node keeps it for backward
    NUMBER = 5  # no tensor: a whole number in a local variable, which is in `addr`
    # No tensors, of a process that did not crash: values of the program's variables on the interrupted thread
    WHOLE = 6  # `addr`: the number, signed
    TRUTH = 7  # `addr`: 0 or 1
    REAL = 8  # `addr`: the bits of a double
    NOTHING = 9  # None
    LENGTH = 10  # `addr`: the items of a list, tuple or dict; `distance`: see LengthOf


class LengthOf(IntEnum):
    """`Holder.distance` of LENGTH: what has the items."""

    NONE = 0
    LIST = 1
    TUPLE = 2
    DICT = 3


class ArgumentHow(IntEnum):
    """`Argument.how`: what the word was by which the tensor was found."""

    IMPL = 1  # the address of its TensorImpl: an at::Tensor, or what an inlined function made of one
    REFERENCE = 2  # the address of such a word: `const at::Tensor&`
    CAPTURED = 3  # in memory that a word of a worker's stack points at: a lambda's captures
    HELD = 4  # no word: a local variable of the innermost Python frames


class GuardedState(IntEnum):
    """`GuardedStorage.state`; stored last."""

    EMPTY = 0
    LIVE = 1
    QUARANTINED = 2


class GuardMechanism(IntEnum):
    """`GuardRegion.mechanism`: what makes a page of the guard's pool fault."""

    NONE = 0
    MARKERS = 1  # MADV_GUARD_INSTALL, Linux 6.13 and later
    PROTECTION = 2  # mprotect: two mappings per storage


class CrashState(IntEnum):
    """`CrashHeader.state`. LIVE, EXIT: nothing crashed.

    LIVE: the stacks of a running process, taken on request. EXIT: those of the thread that ends the process.
    """

    NONE = 0
    CLAIMED = 1
    COMPLETE = 2
    CHAINED = 3
    REPAIRED = 4
    LIVE = 5
    EXIT = 6


@dataclass(frozen=True, eq=False)  # compared and hashed by identity: each is declared once
class Field:
    """One member of a structure.

    `type` is u8, u16, u32, u64, i32 or i64, `char[N]` for text padded with NULs, or `T[N]` for an array.
    """

    name: str
    type: str
    meaning: str
    unit: str = ""
    since: int = 0


@dataclass(frozen=True, eq=False)  # compared and hashed by identity: each is declared once
class Struct:
    """One structure; `nbytes` is asserted on both sides."""

    name: str
    nbytes: int
    meaning: str
    fields: tuple[Field, ...]


def _f(name: str, type: str, meaning: str, unit: str = "", since: int = 0) -> Field:
    return Field(name, type, meaning, unit, since)


FILE_HEADER = Struct(
    "FileHeader",
    512,
    "First bytes of the file. Identity is written once; the counters at the end change.",
    (
        _f("magic", "char[8]", "89 'pytrc' CR LF: a text-mode copy is detected"),
        _f("major", "u16", "readers refuse a larger one"),
        _f("minor", "u16", "readers skip what they do not know"),
        _f("header_bytes", "u32", "offset of the first region", "bytes"),
        _f("state", "u32", "see State"),
        _f("arch", "u32", "1 x86-64, 2 aarch64"),
        _f("pid", "i32", "process id in its own pid namespace"),
        _f("ppid", "i32", "parent when the file was created; of a forked child the process that forked it"),
        _f("uid", "u32", "user id"),
        _f("page_bytes", "u32", "page size", "bytes"),
        _f("start_ticks", "u64", "start time of the process, field 22 of /proc/self/stat: unchanged by exec", "ticks"),
        _f("created_mono_ns", "u64", "CLOCK_MONOTONIC when the file was created", "ns"),
        _f("created_wall_ns", "u64", "CLOCK_REALTIME at the same moment", "ns"),
        _f("exit_mono_ns", "u64", "when exit() or _exit() was called", "ns"),
        _f("exit_code", "i32", "its argument; valid in state EXITING"),
        _f("region_count", "u32", "published entries of the region directory"),
        _f("journal_used", "u64", "bytes reserved in the journal", "bytes"),
        _f("journal_dropped", "u64", "entries that did not fit", "count"),
        _f("step", "i64", "last pytracer.step(n) or counted optimizer step; -1: none"),
        _f("step_source", "u32", "0 none, 1 pytracer.step, 2 counted optimizer steps"),
        _f("storages_unfollowed", "u32", "storages not recorded, because their end would not have been observed", "count"),
        _f("storages_dropped", "u64", "storages that found no slot", "count"),
        _f("unknown_frees", "u64", "frees of unknown storages", "count"),
        _f("stale_storages", "u64", "slots taken over because a free was missed", "count"),
        _f("threads_dropped", "u64", "threads without a context: their records are lost", "count"),
        _f("faults_repaired", "u64", "signals that another handler repaired", "count"),
        _f("hook_errors", "u64", "errors swallowed inside a hook", "count"),
        _f("collectives", "u64", "collectives started by this process", "count"),
        _f("preloaded", "u32", "1: the library was preloaded, 0: pytracer.enable() loaded it"),
        _f("python_minor", "u32", "minor version of CPython; 0: none"),
        _f("boot_id", "char[40]", "/proc/sys/kernel/random/boot_id: the clock that mono times belong to"),
        _f("host", "char[64]", "host name"),
        _f("thread_count", "u32", "thread contexts assigned so far", "count"),
        _f("python_offsets_ok", "u32", "1: the frame offsets passed their self-test"),
        _f("live_reports", "u64", "answered requests for the stacks of the running process", "count"),
        _f("names_dropped", "u64", "tensors and modules that found no slot in NAMES", "count"),
        _f("guard_damage", "u64", "GUARD_DAMAGE entries: guarded storages with changed bytes beside them", "count"),
        _f("foreign_dropped", "u64", "external allocations that found no slot", "count"),
        _f("epoch", "u32", "coarse timestamp: advances every 1024 storage records of a thread and at each journal entry, step and collective; alone in its cache line"),
        _f("reserved_line", "u8[60]", "zero"),
        _f("device_sequence", "u32", "events of the CUDA devices' allocators", "count"),
        _f("device_blocks_dropped", "u32", "blocks and segments that found no slot", "count"),
        _f("device_unknown_frees", "u32", "frees of unknown blocks", "count"),
        _f("reserved_progress", "u32", "zero"),
        _f("progress_ns", "u64", "CLOCK_MONOTONIC of the last poll of NCCL's collectives and the CUDA streams; 0: never", "ns"),
        _f("trimmed", "u32", "1: the process ended with success and its tables were returned; missing data means nothing"),
        _f("redacted", "u32", "secrets in command lines and variables that were replaced before they were written", "count"),
        _f("process_group", "i32", "process group when recording started; 0: not known (minor version below 5)"),
        _f("reserved_end", "u8[92]", "zero"),
    ),
)

REGION_ENTRY = Struct(
    "RegionEntry",
    40,
    "The region directory starts at byte 512. An entry is valid once `FileHeader.region_count` exceeds its index.",
    (
        _f("kind", "u32", "see Region"),
        _f("item_bytes", "u32", "size of one item; 1 for byte regions", "bytes"),
        _f("offset", "u64", "from the start of the file", "bytes"),
        _f("nbytes", "u64", "size of the region", "bytes"),
        _f("item_count", "u64", "items that fit", "count"),
        _f("first_thread", "u32", "THREADS, RECORDS, FREED_STORAGES: index of the chunk's first thread"),
        _f("log2_slots", "u32", "STORAGES: log2 of item_count"),
    ),
)

THREAD = Struct(
    "ThreadHead",
    128,
    "One thread context. Contexts of ended threads are reused; freed storages stay until overwritten.",
    (
        _f("tid", "i32", "kernel thread id; 0: never used"),
        _f("ended", "u32", "1 after the thread ended"),
        _f("pthread", "u64", "pthread_self()"),
        _f("name", "char[16]", "thread name when the context was attached"),
        _f("record_count", "u64", "records written to the ring so far", "count"),
        _f("small_freed_count", "u64", "freed small storages, written to the first half of the ring", "count"),
        _f("large_freed_count", "u64", "freed large storages, written to the second half of the ring", "count"),
        _f("alloc_count", "u64", "storages allocated", "count"),
        _f("free_count", "u64", "storages freed", "count"),
        _f("sequence", "u32", "storage records of this thread, wrapping", "count"),
        _f("generation", "u32", "how often this context was assigned", "count"),
        _f("first_record", "u64", "record_count when this thread got the context: earlier records belong to another thread", "count"),
        _f("reserved", "u64[5]", "zero"),
    ),
)

EPOCH = Struct(
    "Epoch",
    24,
    "Slot epoch % EPOCH_SLOTS: when that epoch began.",
    (
        _f("epoch", "u32", "which epoch; written last"),
        _f("reserved", "u32", "zero"),
        _f("mono_ns", "u64", "CLOCK_MONOTONIC", "ns"),
        _f("step", "i64", "step at that time"),
    ),
)

LIVE_STORAGE = Struct(
    "LiveStorage",
    32,
    "One slot of the open-addressing table. BUSY while being written; LIVE is stored last.",
    (
        _f("key", "u64", "sequence, address and state, see KEY_*"),
        _f("size_thread", "u64", "[47:0] bytes, [63:48] thread index of the allocation"),
        _f("site_id", "u32", "site of the allocation"),
        _f("site_where", "u32", "CODE: instruction offset in bytes; NODE and SITE: sequence number of the autograd node"),
        _f("epoch", "u32", "when"),
        _f("sequence", "u32", "order within the thread"),
    ),
)

STORAGE_LIFETIME = Struct(
    "StorageLifetime",
    64,
    "A whole allocation lifetime, written when the storage was freed.",
    (
        _f("base", "u64", "address"),
        _f("nbytes", "u64", "size", "bytes"),
        _f("order", "u32", "1 + position in the ring; 0 while being written; stored last"),
        _f("alloc_thread", "u16", "thread index"),
        _f("free_thread", "u16", "thread index"),
        _f("alloc_site_id", "u32", "site of the allocation"),
        _f("alloc_site_where", "u32", "see LiveStorage.site_where"),
        _f("free_site_id", "u32", "site of the free"),
        _f("free_site_where", "u32", "see LiveStorage.site_where"),
        _f("alloc_epoch", "u32", "when allocated"),
        _f("alloc_sequence", "u32", "order within the allocating thread"),
        _f("free_epoch", "u32", "when freed"),
        _f("free_sequence", "u32", "order within the freeing thread"),
        _f("origin", "u32", "see Origin"),
        _f("external", "u32", "1 + its slot in EXTERNAL_ALLOCATIONS; 0: it was in the table of live storages"),
    ),
)

EXTERNAL_ALLOCATION = Struct(
    "ExternalAllocation",
    256,
    "An external allocation: a storage whose memory torch did not allocate. A freed one stays until its slot is reused.",
    (
        _f("state", "u32", "see ExternalState"),
        _f("generation", "u32", "how often the slot was assigned", "count"),
        _f("life", "u8[64]", "a StorageLifetime; its second half is set when the storage is freed"),
        _f("identity", "u64", "address of the object that owns the memory; 0: none"),
        _f("file_offset", "u64", "where in the file the storage begins", "bytes"),
        _f("flags", "u32", "bit 0: allocated before recording started, 1: the beginning of `file` did not fit"),
        _f("reserved", "u32", "zero"),
        _f("file", "char[160]", "the mapped file, or the name of the shared memory"),
    ),
)

DEVICE_BLOCK = Struct(
    "DeviceBlock",
    96,
    "One allocation of torch's caching allocator, in the table of live blocks or in the ring of freed ones.",
    (
        _f("order", "u32", "0 while being written; stored last. In the table a counter of changes, in the ring 1 + position"),
        _f("state", "u16", "see BlockState"),
        _f("device", "u16", "index of the device"),
        _f("addr", "u64", "address"),
        _f("nbytes", "u64", "requested size", "bytes"),
        _f("stream", "u64", "cudaStream_t that it was allocated for; 0: the default stream"),
        _f("pool_graph", "u32", "first half of torch's pool id: the private pool of a CUDA graph"),
        _f("pool_number", "u32", "second half: torch.cuda.MemPool or graph_pool_handle(); both 0: the default pool"),
        _f("alloc_tid", "i32", "kernel thread id"),
        _f("free_tid", "i32", "kernel thread id"),
        _f("alloc_site_id", "u32", "site of the allocation"),
        _f("alloc_site_where", "u32", "see LiveStorage.site_where"),
        _f("free_site_id", "u32", "site of the free"),
        _f("free_site_where", "u32", "see LiveStorage.site_where"),
        _f("alloc_epoch", "u32", "when"),
        _f("alloc_sequence", "u32", "order among the events of all devices, from 1"),
        _f("free_epoch", "u32", "when the program freed it"),
        _f("free_sequence", "u32", "order among the events of all devices"),
        _f("reserved", "u64[2]", "zero"),
    ),
)

DEVICE_SEGMENT = Struct(
    "DeviceSegment",
    64,
    "Memory that a caching allocator got from the driver, which contains blocks; or a mapped part of an expandable segment.",
    (
        _f("order", "u32", "0 while being written; stored last"),
        _f("state", "u16", "see SegmentState"),
        _f("device", "u16", "index of the device"),
        _f("addr", "u64", "address"),
        _f("nbytes", "u64", "size", "bytes"),
        _f("stream", "u64", "cudaStream_t"),
        _f("pool_graph", "u32", "see DeviceBlock"),
        _f("pool_number", "u32", "see DeviceBlock"),
        _f("expandable", "u32", "1: a mapped part of an expandable segment"),
        _f("reserved", "u32", "zero"),
        _f("begin_epoch", "u32", "when"),
        _f("begin_sequence", "u32", "order among the events of all devices"),
        _f("end_epoch", "u32", "when it was returned"),
        _f("end_sequence", "u32", "order among the events of all devices"),
    ),
)

CUDA_GRAPH = Struct(
    "CudaGraph",
    128,
    "One torch.cuda.CUDAGraph. Slot (number - 1) % CUDA_GRAPHS.",
    (
        _f("order", "u32", "0 while being written; stored last"),
        _f("state", "u32", "see GraphState"),
        _f("number", "u32", "order of the first capture in this process, from 1"),
        _f("device", "u32", "index of the device"),
        _f("pool_graph", "u32", "see DeviceBlock"),
        _f("pool_number", "u32", "see DeviceBlock"),
        _f("stream", "u64", "cudaStream_t of the capture"),
        _f("site_id", "u32", "call site of the capture"),
        _f("site_where", "u32", "see LiveStorage.site_where"),
        _f("reset_site_id", "u32", "call site of the reset"),
        _f("reset_site_where", "u32", "see LiveStorage.site_where"),
        _f("captured_ns", "u64", "CLOCK_MONOTONIC at the end of the capture", "ns"),
        _f("reset_ns", "u64", "CLOCK_MONOTONIC; 0: not reset", "ns"),
        _f("replays", "u64", "how often it was launched", "count"),
        _f("replayed_ns", "u64", "CLOCK_MONOTONIC of the last replay", "ns"),
        _f("inputs", "u32", "entries of GRAPH_INPUTS", "count"),
        _f("inputs_dropped", "u32", "inputs that did not fit, or are unknown to the allocator", "count"),
        _f("collectives", "u32", "captured collectives", "count"),
        _f("broken", "u32", "inputs that are no longer live", "count"),
        _f("broken_replays", "u64", "replays with such inputs", "count"),
        _f("broken_replayed_ns", "u64", "CLOCK_MONOTONIC of the first of these", "ns"),
        _f("capture_sequence", "u32", "last event of the devices before the capture"),
        _f("name_id", "u32", "journal id of its NAME, e.g. that of a compiled function; 0: none"),
        _f("broken_sequence", "u32", "last event of the devices before the last of these"),
        _f("reserved", "u32", "zero"),
    ),
)

GRAPH_INPUT = Struct(
    "GraphInput",
    96,
    "Memory that a CUDA graph reads or writes at every replay and that was allocated before its capture.",
    (
        _f("order", "u32", "0 while being written; stored last"),
        _f("state", "u16", "see InputState"),
        _f("device", "u16", "index of the device"),
        _f("graph", "u32", "CudaGraph.number"),
        _f("kernel", "u32", "KERNEL that was captured first with it; 0: none is known"),
        _f("addr", "u64", "address of the block"),
        _f("nbytes", "u64", "its size", "bytes"),
        _f("alloc_site_id", "u32", "site of the allocation"),
        _f("alloc_site_where", "u32", "see LiveStorage.site_where"),
        _f("free_site_id", "u32", "site of the free"),
        _f("free_site_where", "u32", "see LiveStorage.site_where"),
        _f("free_epoch", "u32", "when"),
        _f("free_sequence", "u32", "order among the events of all devices"),
        _f("new_site_id", "u32", "REALLOCATED: allocation site of the block that is there now"),
        _f("new_site_where", "u32", "see LiveStorage.site_where"),
        _f("new_addr", "u64", "REALLOCATED: address of that block"),
        _f("new_nbytes", "u64", "its size", "bytes"),
        _f("new_epoch", "u32", "when"),
        _f("new_sequence", "u32", "order among the events of all devices"),
        _f("reserved_end", "u64", "zero"),
    ),
)

CUDA_STREAM = Struct(
    "CudaStream",
    64,
    "A CUDA stream that blocks were allocated for or collectives queued on. Queried once a second, never waited for.",
    (
        _f("order", "u32", "0 while being written; stored last"),
        _f("state", "u16", "see StreamState"),
        _f("device", "u16", "index of the device"),
        _f("stream", "u64", "cudaStream_t; 0: the default stream"),
        _f("since_ns", "u64", "CLOCK_MONOTONIC when it was first seen in this state", "ns"),
        _f("asked_ns", "u64", "CLOCK_MONOTONIC of the last query", "ns"),
        _f("error", "i32", "FAILED: the cudaError_t"),
        _f("reserved", "u32", "zero"),
        _f("reserved_end", "u64[3]", "zero"),
    ),
)

STREAM_RECORD = Struct(
    "StreamRecord",
    40,
    "STREAM: a CUDA stream waits for another, or the host waits for one. Level ops.",
    (
        _f("action", "u32", "see StreamAction"),
        _f("device", "u32", "index of the device"),
        _f("stream", "u64", "cudaStream_t that waits, or on which the event is recorded"),
        _f("event", "u64", "cudaEvent_t; 0: none"),
        _f("other_stream", "u64", "WAITS_FOR_STREAM: cudaStream_t that is waited for"),
        _f("reserved", "u64", "zero"),
    ),
)

DEVICE_OOM_ENTRY = Struct(
    "DeviceOomEntry",
    64,
    "DEVICE_OOM: followed by `user_count` DeviceOomUser, the largest first.",
    (
        _f("device", "u32", "index of the device"),
        _f("user_count", "u32", "entries that follow", "count"),
        _f("wanted_nbytes", "u64", "requested size, rounded by the allocator", "bytes"),
        _f("free_nbytes", "u64", "free memory of the device", "bytes"),
        _f("live_nbytes", "u64", "in live blocks of this process", "bytes"),
        _f("awaited_nbytes", "u64", "in blocks that the program freed and other CUDA streams still use", "bytes"),
        _f("segment_nbytes", "u64", "that this process got from the driver", "bytes"),
        _f("live_count", "u32", "live blocks", "count"),
        _f("segment_count", "u32", "segments", "count"),
        _f("site_id", "u32", "site of the request"),
        _f("site_where", "u32", "see LiveStorage.site_where"),
    ),
)

DEVICE_OOM_USER = Struct(
    "DeviceOomUser",
    24,
    "The live blocks that one call site allocated.",
    (
        _f("site_id", "u32", "site of the allocation"),
        _f("site_where", "u32", "see LiveStorage.site_where"),
        _f("nbytes", "u64", "total", "bytes"),
        _f("count", "u32", "blocks", "count"),
        _f("pool", "u32", "1: in a pool other than the default one"),
    ),
)

RECORD_HEADER = Struct(
    "RecordHeader",
    16,
    "Starts every record. The ring slot of record n is n % RECORDS_PER_THREAD.",
    (
        _f("order", "u32", "low 32 bits of n + 1; 0 while being written; stored last"),
        _f("kind", "u16", "see Record"),
        _f("nbytes", "u16", "header and payload", "bytes"),
        _f("mono_ns", "u64", "CLOCK_MONOTONIC", "ns"),
    ),
)

TEXT_RECORD = Struct(
    "TextRecord",
    112,
    "MARK: text of pytracer.mark(). SAMPLE: a DataLoader worker begins a batch, `COUNT INDICES` as in `8 0-3,7,9-11`; empty: it is done.",
    (_f("text", "char[112]", "UTF-8, cut to fit"),),
)

STEP_RECORD = Struct(
    "StepRecord",
    16,
    "STEP.",
    (
        _f("step", "i64", "the number given"),
        _f("source", "u32", "as FileHeader.step_source"),
        _f("reserved", "u32", "zero"),
    ),
)

NODE_RECORD = Struct(
    "NodeRecord",
    112,
    "NODE: an autograd node starts. RANGE_BEGIN, RANGE_END, OP: the same for a named range or operator.",
    (
        _f("name", "char[48]", "cut to fit"),
        _f("sequence_nr", "i64", "autograd sequence number; -1: none"),
        _f("input_count", "u32", "tensors among the inputs", "count"),
        _f("device", "u32", "1 + index of the thread's CUDA device; 0: the process does not use CUDA"),
        _f("stream", "u64", "current cudaStream_t of the thread there; 0 is the default stream"),
        _f("storages", "u64[5]", "storage addresses of the first inputs"),
    ),
)

DEVICE_OP_RECORD = Struct(
    "DeviceOpRecord",
    112,
    "DEVICE_OP: an operator of a thread that uses CUDA, in place of OP. Level ops.",
    (
        _f("name", "char[40]", "cut to fit"),
        _f("site_id", "u32", "call site"),
        _f("site_where", "u32", "see LiveStorage.site_where"),
        _f("sequence_nr", "i64", "autograd sequence number; -1: none"),
        _f("input_count", "u32", "tensors among the inputs; DEVICE_OP_ASYNCHRONOUS is added for a copy between a device and pinned memory, non_blocking", "count"),
        _f("device", "u32", "low 8 bits: 1 + index of the thread's CUDA device; above: KERNEL that it launched last, 0: none is known"),
        _f("stream", "u64", "current cudaStream_t of the thread there; 0 is the default stream"),
        _f("storages", "u64[5]", "storage addresses of the first inputs; DEVICE_OP_HOST is added to those of host memory; DEVICE_OP_NO_MEMORY: elements, but no memory"),
    ),
)

COLLECTIVE_SLOT = Struct(
    "CollectiveSlot",
    256,
    "One collective or point-to-point operation. The ring slot of number n is (n - 1) % COLLECTIVES; its state changes in place.",
    (
        _f("order", "u32", "low 32 bits of number; 0 while being written; stored last"),
        _f("state", "u32", "see CollectiveState"),
        _f("number", "u64", "order of the call in this process, from 1"),
        _f("sequence_nr", "u64", "from 1: among the collectives of its group; of point-to-point operations among those of the group with that peer and direction"),
        _f("scheduled_ns", "u64", "CLOCK_MONOTONIC when it was called", "ns"),
        _f("started_ns", "u64", "when the backend started it; 0: not observed", "ns"),
        _f("ended_ns", "u64", "when it completed or failed; 0: not observed", "ns"),
        _f("group_id", "u32", "journal id of its GROUP_SEEN entry; 0: unknown"),
        _f("tid", "i32", "thread that called it"),
        _f("name", "char[32]", "c10d's operator, e.g. allreduce_"),
        _f("root", "i32", "rank in the group; -1: none"),
        _f("peer", "i32", "rank in the group of the other side; -1: none or any"),
        _f("tag", "i32", "of point-to-point operations; -1: none"),
        _f("reduce_op", "i32", "c10d::ReduceOp::RedOpType; -1: none"),
        _f("flags", "u32", "bit 0 point-to-point, 1 asynchronous, 2 the tensors are outputs only, 3 the call has returned"),
        _f("timeout_ms", "i32", "-1: the group's", "ms"),
        _f("buffer_addr", "u64", "data address of the first input, else output"),
        _f("storage_addr", "u64", "base address of its storage"),
        _f("numel", "u64", "elements of all inputs", "elements"),
        _f("nbytes", "u64", "of all inputs", "bytes"),
        _f("tensor_count", "u32", "inputs", "count"),
        _f("dim_count", "u32", "dimensions of the first tensor", "count"),
        _f("output_addr", "u64", "data address of the first output; 0: the inputs are the outputs"),
        _f("output_numel", "u64", "elements of all outputs", "elements"),
        _f("output_nbytes", "u64", "of all outputs", "bytes"),
        _f("dtype", "char[16]", "of the first tensor: torch's name without the torch. prefix"),
        _f("sizes", "u32[6]", "first dimensions of the first tensor, saturated", "elements"),
        _f("site_id", "u32", "call site: CODE, NODE or SITE"),
        _f("site_where", "u32", "see LiveStorage.site_where"),
        _f("step", "i64", "step at the call; -1: none"),
        _f("scope_id", "u32", "journal id of the SCOPE of the call; 0: none"),
        _f("epoch", "u32", "epoch that began with it"),
        _f("output_storage_addr", "u64", "base address of the first output's storage; 0: the inputs are the outputs"),
        _f("graph", "u32", "number of the CUDA graph that it was captured into; 0: none"),
        _f("stream", "u32", "low half of the current cudaStream_t of the calling thread, of collectives on CUDA devices"),
    ),
)

SCOPED_TENSOR = Struct(
    "ScopedTensor",
    48,
    "A tensor used by torch.ops.fsdp. The ring slot of number n is (n - 1) % SCOPED_TENSORS.",
    (
        _f("order", "u32", "low 32 bits of number; 0 while being written; stored last"),
        _f("role", "u32", "see TensorRole"),
        _f("addr", "u64", "data address"),
        _f("nbytes", "u64", "size", "bytes"),
        _f("scope_id", "u32", "journal id of the thread's SCOPE; 0: none"),
        _f("epoch", "u32", "epoch that began with the operator: the storage was allocated before"),
        _f("index", "u32", "position among the operator's tensors of that role"),
        _f("count", "u32", "tensors of that role", "count"),
        _f("mono_ns", "u64", "CLOCK_MONOTONIC", "ns"),
    ),
)

GROUP_ENTRY = Struct(
    "GroupEntry",
    24,
    "GROUP_SEEN: followed by the group's name and its description.",
    (
        _f("size", "i32", "ranks in the group", "count"),
        _f("rank", "i32", "this process's rank in the group"),
        _f("name_nbytes", "u32", "size of the name", "bytes"),
        _f("description_nbytes", "u32", "size of the description", "bytes"),
        _f("backend", "char[8]", "e.g. gloo"),
    ),
)

ENTRY_HEADER = Struct(
    "EntryHeader",
    24,
    "Starts every journal entry; entries are 8-byte aligned and follow each other.",
    (
        _f("magic", "u16", "JOURNAL_MAGIC: a reader finds the next entry after a torn one"),
        _f("kind", "u16", "see Entry"),
        _f("nbytes", "u32", "header and payload, without padding to 8", "bytes"),
        _f("mono_ns", "u64", "CLOCK_MONOTONIC", "ns"),
        _f("epoch", "u32", "epoch that began with this entry"),
        _f("published", "u32", "1 once complete; stored last"),
    ),
)

CORE_NOTE_ENTRY = Struct(
    "CoreNoteEntry",
    24,
    "CORE_NOTE: what the core could not do.",
    (
        _f("code", "u32", "CoreNote"),
        _f("reserved", "u32", "zero"),
        _f("addr", "u64", "the address it is about; 0: none"),
        _f("value", "u64", "a number or errno, by `code`"),
    ),
)

WAIT_ENTRY = Struct(
    "WaitEntry",
    56,
    "WAIT: a parent reaped a child.",
    (
        _f("pid", "i32", "the child"),
        _f("status", "i32", "raw: wait status, or si_status when via_waitid"),
        _f("code", "i32", "si_code when via_waitid"),
        _f("via_waitid", "u32", "1: waitid() was used"),
        _f("mono_ns", "u64", "when the call returned", "ns"),
        _f("user_us", "u64", "CPU time of the child and of what it reaped; all ones: unknown", "us"),
        _f("system_us", "u64", "the same, in the kernel", "us"),
        _f("max_rss_kb", "u64", "maximum resident memory of the child, or of one that it reaped", "KiB"),
        _f("major_faults", "u64", "page faults that read from a disk", "count"),
    ),
)

CODE_ENTRY = Struct(
    "CodeEntry",
    24,
    "CODE: followed by the qualified name, the file name and the raw co_linetable.",
    (
        _f("first_line", "i32", "co_firstlineno"),
        _f("python_minor", "u16", "which line-table format"),
        _f("name_kind", "u8", "bytes per character of the name: 1, 2 or 4"),
        _f("file_kind", "u8", "bytes per character of the file name"),
        _f("name_nbytes", "u32", "size of the name", "bytes"),
        _f("file_nbytes", "u32", "size of the file name", "bytes"),
        _f("table_nbytes", "u32", "size of the line table", "bytes"),
        _f("flags", "u32", "bit 0: the file belongs to torch or pytracer"),
    ),
)

SITE_ENTRY = Struct(
    "SiteEntry",
    24,
    "SITE: where a large storage was allocated or freed.",
    (
        _f("code_id", "u32", "innermost CODE; 0: none"),
        _f("code_offset", "u32", "instruction offset", "bytes"),
        _f("caller_id", "u32", "first CODE outside torch and pytracer; 0: none or the same"),
        _f("caller_offset", "u32", "instruction offset", "bytes"),
        _f("node_id", "u32", "NODE that was running; 0: none"),
        _f("reserved", "u32", "zero"),
    ),
)

STACK_ENTRY = Struct(
    "StackEntry",
    8,
    "STACK: followed by `count` call sites, innermost first.",
    (
        _f("node_id", "u32", "NODE that was running; 0: none"),
        _f("count", "u32", "call sites that follow", "count"),
    ),
)

STACK_PLACE = Struct(
    "StackPlace",
    8,
    "One call site of a STACK entry.",
    (
        _f("code_id", "u32", "CODE; 0: unknown"),
        _f("code_offset", "u32", "instruction offset", "bytes"),
    ),
)

GUARD_REGION = Struct(
    "GuardRegion",
    256,
    "GUARD: settings, address ranges and counters of guard mode.",
    (
        _f("armed", "u32", "1: new storages are guarded"),
        _f("mechanism", "u32", "see GuardMechanism; of storages below 2 MiB, larger ones are always protected"),
        _f("every", "u64", "one in this many storages is guarded; 1: all"),
        _f("min_bytes", "u64", "smaller storages are not guarded", "bytes"),
        _f("alignment", "u32", "of guarded storages", "bytes"),
        _f("underrun", "u32", "1: the storage starts at a guard page, 0: it ends at one"),
        _f("budget_bytes", "u64", "limit of memory in live guarded storages, in whole pages", "bytes"),
        _f("budget_mappings", "u64", "limit of memory mappings used by guarding", "count"),
        _f("small_low", "u64", "the pool of storages below 2 MiB"),
        _f("small_high", "u64", "its end"),
        _f("large_low", "u64", "the pool of larger ones"),
        _f("large_high", "u64", "its end"),
        _f("guarded", "u64", "storages guarded so far", "count"),
        _f("quarantined", "u64", "of these, freed so far", "count"),
        _f("refused_bytes", "u64", "storages left unguarded: the budget of bytes was exhausted", "count"),
        _f("refused_mappings", "u64", "the same: the budget of mappings", "count"),
        _f("refused_records", "u64", "the same: no record or no address was free", "count"),
        _f("refused_system", "u64", "the same: the kernel refused", "count"),
        _f("unsealed", "u64", "freed storages whose pages the kernel refused to protect: a use after free does not fault", "count"),
        _f("live", "u64", "live guarded storages", "count"),
        _f("live_bytes", "u64", "memory in their pages", "bytes"),
        _f("most_bytes", "u64", "maximum of live_bytes", "bytes"),
        _f("mappings", "u64", "memory mappings used by guarding", "count"),
        _f("fallback_errno", "i32", "errno with which MADV_GUARD_INSTALL was refused; 0: never; -1: not tried"),
        _f("reserved_word", "u32", "zero"),
        _f("reserved", "u8[80]", "zero"),
    ),
)

GUARDED_STORAGE = Struct(
    "GuardedStorage",
    128,
    "GUARDED: one guarded storage, or its quarantine. Of several that overlap the one with the largest number is valid.",
    (
        _f("base", "u64", "address"),
        _f("nbytes", "u64", "size", "bytes"),
        _f("low", "u64", "start of its pages; the page before is a guard"),
        _f("high", "u64", "end of its pages; the page behind is a guard"),
        _f("number", "u64", "order among the guarded storages of this process, from 1"),
        _f("allocated_ns", "u64", "CLOCK_MONOTONIC", "ns"),
        _f("freed_ns", "u64", "CLOCK_MONOTONIC", "ns"),
        _f("state", "u32", "see GuardedState; stored last"),
        _f("alloc_tid", "i32", "allocating thread"),
        _f("free_tid", "i32", "freeing thread"),
        _f("alloc_site_id", "u32", "site of the allocation"),
        _f("alloc_site_where", "u32", "see LiveStorage.site_where"),
        _f("free_site_id", "u32", "site of the free"),
        _f("free_site_where", "u32", "see LiveStorage.site_where"),
        _f("alloc_epoch", "u32", "when allocated"),
        _f("free_epoch", "u32", "when freed"),
        _f("damage_side", "u32", "0 none, 1 bytes behind the storage had changed, 2 bytes before it"),
        _f("damage_offset", "i64", "first changed byte, from the base", "bytes"),
        _f("damage_nbytes", "u32", "from the first to the last changed byte", "bytes"),
        _f("reserved", "u32", "zero"),
        _f("damage_bytes", "u8[16]", "new content of the first changed bytes"),
    ),
)

CRASH_HEADER = Struct(
    "CrashHeader",
    1024,
    "Written by the crash handler, step by step.",
    (
        _f("state", "u32", "see CrashState"),
        _f("tid", "i32", "crashed thread"),
        _f("signal", "i32", "signal number"),
        _f("code", "i32", "si_code"),
        _f("fault_addr", "u64", "si_addr; for sent signals zero"),
        _f("sender_pid", "i32", "si_pid of a sent signal"),
        _f("sender_uid", "u32", "si_uid of a sent signal"),
        _f("mono_ns", "u64", "when the handler was entered", "ns"),
        _f("steps_done", "u32", "bit per Step"),
        _f("steps_faulted", "u32", "bit per Step: a fault inside it was survived"),
        _f("step_end_ns", "u64[16]", "CLOCK_MONOTONIC after each step", "ns"),
        _f("registers", "u64[34]", "x86-64: gregset order; aarch64: x0-x30, sp, pc, pstate"),
        _f("pc", "u64", "program counter"),
        _f("sp", "u64", "stack pointer"),
        _f("error_code", "u64", "page-fault error code; ~0: none"),
        _f("trap", "u64", "x86-64 trap number; ~0: none"),
        _f("pthread", "u64", "pthread_self()"),
        _f("stack_low", "u64", "lowest address of the thread's stack; 0: unknown"),
        _f("stack_high", "u64", "end of the thread's stack; 0: unknown"),
        _f("thread_name", "char[16]", "kernel name of the thread"),
        _f("thread_index", "i32", "index of its context; -1: none"),
        _f("on_alternate_stack", "u32", "1: the handler ran on its own stack"),
        _f("code_bytes", "u8[32]", "machine code at the program counter"),
        _f("code_nbytes", "u32", "readable bytes", "bytes"),
        _f("also_crashed", "u32", "entries of ALSO_CRASHED", "count"),
        _f("node_name", "char[96]", "mangled C++ class, or the Python class when node_is_python"),
        _f("node_sequence_nr", "i64", "sequence number of the running autograd node; -1: none"),
        _f("node_is_python", "u32", "1: a torch.autograd.Function"),
        _f("node_found", "u32", "1: a node was running on this thread"),
        _f("native_count", "u32", "frames from the innermost on", "count"),
        _f("native_tail", "u32", "outermost frames kept after a gap", "count"),
        _f("native_total", "u64", "frames walked", "count"),
        _f("native_how", "u32", "bit 0 call-frame information, 1 popped a wild program counter, 2 frame pointers, 3 stack scan, 4 reached the thread's first function"),
        _f("python_thread_count", "u32", "entries of PYTHON_THREADS", "count"),
        _f("python_frame_count", "u32", "entries of PYTHON_FRAMES", "count"),
        _f("python_matched", "u32", "1: the first Python thread is the crashed one"),
        _f("python_truncated", "u32", "1: something did not fit"),
        _f("image_count", "u32", "entries of IMAGES", "count"),
        _f("hit_count", "u32", "entries of STORAGE_HITS", "count"),
        _f("arena_used", "u32", "bytes of ARENA", "bytes"),
        _f("maps_used", "u32", "bytes of MAPS", "bytes"),
        _f("maps_truncated", "u32", "1: MAPS was too small"),
        _f("siginfo", "u8[128]", "as the kernel gave it"),
        _f("steps_late", "u32", "bit per Step: it took too long and was abandoned"),
        _f("abort_text", "u32", "offset in ARENA of what the C library printed before abort(): a failed assertion, heap damage"),
        _f("abort_text_nbytes", "u32", "its size; 0: none", "bytes"),
        _f("sender_text", "u32", "offset in ARENA of the command line of the process that sent the signal, NUL-separated"),
        _f("sender_text_nbytes", "u32", "its size; 0: unknown", "bytes"),
        _f("memory_count", "u32", "entries of MEMORY", "count"),
        _f("file_nbytes", "u64", "size of the file mapped at the fault address, at the crash; ~0: unknown", "bytes"),
        _f("file_room", "u64", "bytes free on its file system; ~0: unknown", "bytes"),
        _f("file_system", "u64", "its statfs(2) f_type"),
        _f("helper_state", "u32", "see HelperState"),
        _f("helper_error", "i32", "errno when the helper refused"),
        _f("threads_how", "u32", "see ThreadsHow"),
        _f("threads_total", "u32", "live threads beside the crashed one", "count"),
        _f("thread_stack_count", "u32", "entries of THREAD_STACKS", "count"),
        _f("tls_delta", "u32", "pthread_self() minus the thread pointer, two's complement"),
        _f("holder_count", "u32", "entries of HOLDERS", "count"),
        _f("holders_truncated", "u32", "1: the search reached one of its limits"),
        _f("device_sequence", "u32", "last event of the CUDA devices' allocators before the crash; 0: none"),
        _f("argument_count", "u32", "entries of ARGUMENTS", "count", since=4),
        _f("arguments_truncated", "u32", "1: the search reached one of its limits", since=4),
        _f("handled_how", "u32", "1: the crashed thread was handling an exception, 2: the main thread; 0: none", since=5),
        _f("handled_type", "u32", "name of its type: offset in ARENA", since=5),
        _f("handled_type_nbytes", "u32", "its size", since=5),
        _f("handled_message", "u32", "its first argument, a str: offset in ARENA", since=5),
        _f("handled_message_nbytes", "u32", "its size", since=5),
        _f("handled_message_kind", "u32", "bytes per character", since=5),
        _f("handled_first_frame", "u32", "index in PYTHON_FRAMES, after those of all threads", since=5),
        _f("handled_frame_count", "u32", "from where it was raised to where it was caught", "count", since=5),
        _f("unmapped_stack", "u32", "site of the Python lines that gave the memory at the fault address back; 0: unknown", since=6),
        _f("unmapped_addr", "u64", "first byte of what that call of munmap() gave back; 0: no such call is known", since=6),
        _f("unmapped_ns", "u64", "when it was called", "ns", since=6),
        _f("unmapped_by", "u64", "the address that it returned to", since=6),
        _f("unmapped_tid", "i32", "the thread that called it", since=6),
        _f("unmapped_pages", "u32", "how much it gave back, rounded up", "pages of 4096 bytes", since=6),
    ),
)

NATIVE_FRAME = Struct(
    "NativeFrame",
    16,
    "A return address, already moved into the call instruction.",
    (
        _f("pc", "u64", "address"),
        _f("image", "u32", "1 + index in IMAGES; 0: none"),
        _f("found", "u32", "0 exact, 1 unwound, 2 frame pointers, 3 scanned"),
    ),
)

PYTHON_THREAD = Struct(
    "PythonThread",
    16,
    "A thread with a Python thread state.",
    (
        _f("pthread", "u64", "thread_id of the state"),
        _f("first_frame", "u32", "index in PYTHON_FRAMES"),
        _f("frame_count", "u32", "its frames, innermost first", "count"),
    ),
)

PYTHON_FRAME = Struct(
    "PythonFrame",
    56,
    "One Python frame; offsets are into ARENA, 0xffffffff: unreadable.",
    (
        _f("code", "u64", "address of the code object, identity only"),
        _f("offset", "i32", "instruction offset", "bytes"),
        _f("first_line", "i32", "co_firstlineno"),
        _f("name", "u32", "qualified name"),
        _f("name_nbytes", "u32", "its size", "bytes"),
        _f("file", "u32", "file name"),
        _f("file_nbytes", "u32", "its size", "bytes"),
        _f("table", "u32", "co_linetable"),
        _f("table_nbytes", "u32", "its size", "bytes"),
        _f("name_kind", "u32", "bytes per character"),
        _f("file_kind", "u32", "bytes per character"),
        _f("frame", "u64", "address of the interpreter's frame, identity only"),
    ),
)

IMAGE = Struct(
    "Image",
    64,
    "A loaded shared object that has a native frame.",
    (
        _f("start", "u64", "lowest mapped address"),
        _f("end", "u64", "end of the mapping"),
        _f("bias", "u64", "load bias: address = bias + ELF virtual address"),
        _f("path", "u32", "offset in ARENA"),
        _f("path_nbytes", "u32", "its size", "bytes"),
        _f("build_id", "u8[20]", "NT_GNU_BUILD_ID"),
        _f("build_id_nbytes", "u32", "0: none", "bytes"),
        _f("reserved", "u64", "zero"),
    ),
)

STORAGE_HIT = Struct(
    "StorageHit",
    80,
    "A storage near the fault address, or one behind which the heap is overwritten, found before other threads could change the table.",
    (
        _f("kind", "u32", "1 live and covering, 2 live below, 3 live above, 4 freed and covering, 5 freed below, 6 freed above, 7 live and the heap behind it is overwritten, 8 the same of the one that the thread freed last before an abort, 9 and 10 the same two where the heap before it is"),
        _f("thread_index", "u32", "the freeing thread; of live storages the allocating one"),
        _f("word", "u64", "of kinds 7 to 10 what stands where malloc() notes the size of the next block, or of its own; else zero"),
        _f("lifetime", "u8[64]", "a StorageLifetime; of live storages only the allocation is set"),
    ),
)

ALSO_CRASHED = Struct(
    "AlsoCrashed",
    40,
    "A thread that crashed while another crash was being recorded.",
    (
        _f("tid", "i32", "thread"),
        _f("signal", "i32", "signal number"),
        _f("code", "i32", "si_code"),
        _f("published", "u32", "1 once complete"),
        _f("pc", "u64", "program counter"),
        _f("fault_addr", "u64", "si_addr"),
        _f("mono_ns", "u64", "when", "ns"),
    ),
)

MEMORY_BLOCK = Struct(
    "MemoryBlock",
    32,
    "Memory near an address that a register held, as it was at the crash.",
    (
        _f("addr", "u64", "first byte"),
        _f("bytes", "u32", "offset in ARENA"),
        _f("nbytes", "u32", "readable bytes", "bytes"),
        _f("register_index", "u32", "index in CrashHeader.registers"),
        _f("reserved", "u32", "zero"),
        _f("value", "u64", "the register's value"),
    ),
)

THREAD_STACK = Struct(
    "ThreadStack",
    384,
    "A thread that did not crash. Its frames are THREAD_FRAMES[index * THREAD_STACK_FRAMES] and following.",
    (
        _f("tid", "i32", "kernel thread id"),
        _f("state", "u32", "see StackState"),
        _f("pthread", "u64", "pthread_self(); 0: unknown"),
        _f("name", "char[16]", "kernel name of the thread"),
        _f("frame_count", "u32", "frames kept from the innermost on", "count"),
        _f("frame_tail", "u32", "outermost frames kept after a gap: a ring, as in CrashHeader", "count"),
        _f("frame_total", "u32", "frames walked", "count"),
        _f("complete", "u32", "1: the walk reached the thread's first function"),
        _f("syscall", "i32", "system call that it was in; -1: none or unknown"),
        _f("stopped", "u32", "1: the helper stopped it"),
        _f("registers", "u64[34]", "as in CrashHeader, when the helper read them"),
        _f("guessed_from", "u32", "valid if guessed_how is not 0: the first frame not found by call-frame information"),
        _f("guessed_how", "u32", "of those frames, as NativeFrame.found; 0: there are none"),
        _f("reserved", "u8[48]", "zero"),
    ),
)

NAME_SLOT = Struct(
    "NameSlot",
    136,
    "A module or a named tensor; the slots form a tree. Addresses were right when their epoch began; the handler reads them again.",
    (
        _f("role", "u32", "see NameRole; 0: never used"),
        _f("name", "u32", "journal id of its NAME; of a module without parent, its class"),
        _f("parent", "u32", "1 + index of the slot that it belongs to; 0: none"),
        _f("flags", "u32", "bit 0: a wrapper's child, not in names; bit 1: tracked; bit 2: tracked through its dict"),
        _f("object", "u64", "the Python object, identity only; 0: destroyed"),
        _f("impl", "u64", "its TensorImpl"),
        _f("storage_impl", "u64", "its StorageImpl"),
        _f("addr", "u64", "address of the first element"),
        _f("nbytes", "u64", "size of its elements", "bytes"),
        _f("base", "u64", "base address of its storage"),
        _f("grad_addr", "u64", "the same of its gradient"),
        _f("grad_base", "u64", "the same of its gradient"),
        _f("earlier_addr", "u64", "before the tensor got another storage"),
        _f("earlier_base", "u64", "before the tensor got another storage"),
        _f("earlier_grad_addr", "u64", "before the gradient got another storage"),
        _f("earlier_grad_base", "u64", "before the gradient got another storage"),
        _f("epoch", "u32", "when base was last read; 0: never, or while being written"),
        _f("grad_epoch", "u32", "when grad_base was last read"),
        _f("earlier_epoch", "u32", "when earlier_base was last read"),
        _f("earlier_grad_epoch", "u32", "when earlier_grad_base was last read"),
        _f("item_bytes", "u32", "size of an element", "bytes"),
        _f("reserved", "u32", "zero"),
    ),
)

HOLDER = Struct(
    "Holder",
    48,
    "A tensor that a Python variable or an autograd node held at the crash, or a whole number of a variable. An array of NumPy is several "
    "numbers, under Python's expressions for them: x.ctypes.data first, then x.dtype.num, x.shape[0], x.strides[0] ... Behind all others, "
    "of its elements: x.min() and x.max(), or x.isnan().sum() and x.isinf().any().",
    (
        _f("kind", "u32", "see HolderKind"),
        _f("frame", "u32", "index in PYTHON_FRAMES; SAVED: 1 when text names a Python class"),
        _f("base", "u64", "base address of its storage; 0: the tensor has no memory"),
        _f("object", "u64", "the Python object; SAVED: the node. Identity only"),
        _f("text", "u32", "offset in ARENA: Python expression, e.g. caches[1]; SAVED: class of the node, mangled when it is C++"),
        _f("text_nbytes", "u32", "its size", "bytes"),
        _f("addr", "u64", "address of the first element; 0: unknown; NUMBER and the kinds after it: see there"),
        _f("distance", "u32", "SAVED: edges from the node or tensor where the search began; LOCAL, CELL, GLOBAL, since minor version 12: elements from base to the first one, at most 2**32 - 1"),
        _f("elements", "u32", "LOCAL, CELL, GLOBAL: elements of the tensor, at most 2**32 - 1"),
    ),
)

ARGUMENT = Struct(
    "Argument",
    224,
    "A tensor that a register or the stack of the crashed thread referred to. Words of a stack may be stale.",
    (
        _f("impl", "u64", "its TensorImpl, identity only"),
        _f("found_at", "u64", "address of the word of the stack; 0: a register"),
        _f("base", "u64", "base address of its storage; 0: the tensor has no memory"),
        _f("elements", "u64", "their number"),
        _f("offset", "u64", "of the first element from base", "elements"),
        _f("sizes", "i64[8]", "of the first dimensions"),
        _f("strides", "i64[8]", "of the first dimensions", "elements"),
        _f("minimum", "i64", "smallest element; valid if values is 1"),
        _f("maximum", "i64", "largest element; valid if values is 1"),
        _f("frame", "u32", "index in NATIVE_FRAMES of the frame whose stack has the word; ~0: a register, or unknown"),
        _f("register_index", "u32", "index in CrashHeader.registers; ~0: the stack"),
        _f("how", "u32", "see ArgumentHow"),
        _f("dtype", "u32", "number of the data type: c10::ScalarType"),
        _f("dimensions", "u32", "number of dimensions", "count"),
        _f("device", "u32", "type of the device: c10::DeviceType; ~0: none"),
        _f("undefined", "u32", "1: an undefined tensor; nothing else of it is valid"),
        _f("values", "u32", "1: the elements were looked at: an integer tensor of at most 2**20 elements on the CPU (4,096 with gaps), without --no-values"),
        _f("outer_frame", "u32", "as frame, of the outermost frame whose stack has such a word: an argument is in its caller's frame, too"),
        _f("not_numbers", "u32", "of float and complex tensors, looked at as values: 1 more than how many numbers are NaN, and bit 31 where one is infinite; 0: not looked at"),
    ),
)

SIGNAL_ENTRY = Struct(
    "SignalEntry",
    32,
    "SIGNAL_SEEN: SIGTERM, SIGINT, SIGHUP, SIGQUIT or SIGXCPU was delivered, or an unhandled SIGALRM, SIGVTALRM or SIGPROF. Followed by the sender's command line.",
    (
        _f("signal", "i32", "signal number"),
        _f("code", "i32", "si_code"),
        _f("sender_pid", "i32", "si_pid; 0: the kernel, or a process of another pid namespace"),
        _f("sender_uid", "u32", "si_uid"),
        _f("tid", "i32", "thread that received it"),
        _f("handled", "u32", "1: the program has a handler; 0: the default action ended it"),
        _f("command_nbytes", "u32", "size of the command line; 0: unknown", "bytes"),
        _f("reserved", "u32", "zero"),
    ),
)

SIGNAL_SENT_ENTRY = Struct(
    "SignalSentEntry",
    64,
    "SIGNAL_SENT: written before the call, with what the target was then. Followed by the path of the caller's image.",
    (
        _f("signal", "i32", "signal number"),
        _f("target", "i32", "process, or with `to_group` the process group; 0: not known"),
        _f("to_group", "u32", "1: to all processes of a process group, or to every process (target -1)"),
        _f("result", "i32", "0: the call succeeded; an errno; -1: it has not returned"),
        _f("target_ticks", "u64", "start time of the target, field 22 of /proc/<pid>/stat; 0: not known", "ticks"),
        _f("target_state", "u32", "its state then, field 3 of the same file, as a character; 0: not known"),
        _f("tid", "i32", "thread that sends it"),
        _f("stack_id", "u32", "STACK: the Python lines that were executing; 0: none"),
        _f("image_nbytes", "u32", "size of the path that follows; 0: not known", "bytes"),
        _f("caller", "u64", "return address of the call"),
        _f("caller_offset", "u64", "the same as an ELF virtual address in the image; 0: not known"),
        _f("reserved", "u64", "zero"),
    ),
)

CPP_EXCEPTION_ENTRY = Struct(
    "CppExceptionEntry",
    16,
    "CPP_EXCEPTION: followed by the demangled type and what().",
    (
        _f("tid", "i32", "thread that called std::terminate()"),
        _f("type_nbytes", "u32", "size of the type's name; 0: no exception was active", "bytes"),
        _f("what_nbytes", "u32", "size of what(); 0: not a std::exception", "bytes"),
        _f("reserved", "u32", "zero"),
    ),
)

STRUCTS: tuple[Struct, ...] = (
    FILE_HEADER,
    REGION_ENTRY,
    THREAD,
    EPOCH,
    LIVE_STORAGE,
    STORAGE_LIFETIME,
    DEVICE_BLOCK,
    DEVICE_SEGMENT,
    CUDA_GRAPH,
    GRAPH_INPUT,
    CUDA_STREAM,
    STREAM_RECORD,
    DEVICE_OOM_ENTRY,
    DEVICE_OOM_USER,
    EXTERNAL_ALLOCATION,
    RECORD_HEADER,
    TEXT_RECORD,
    STEP_RECORD,
    NODE_RECORD,
    DEVICE_OP_RECORD,
    COLLECTIVE_SLOT,
    SCOPED_TENSOR,
    ENTRY_HEADER,
    CORE_NOTE_ENTRY,
    WAIT_ENTRY,
    CODE_ENTRY,
    SITE_ENTRY,
    STACK_ENTRY,
    STACK_PLACE,
    GROUP_ENTRY,
    CRASH_HEADER,
    NATIVE_FRAME,
    PYTHON_THREAD,
    PYTHON_FRAME,
    IMAGE,
    STORAGE_HIT,
    ALSO_CRASHED,
    MEMORY_BLOCK,
    THREAD_STACK,
    GUARD_REGION,
    GUARDED_STORAGE,
    CPP_EXCEPTION_ENTRY,
    SIGNAL_ENTRY,
    SIGNAL_SENT_ENTRY,
    NAME_SLOT,
    HOLDER,
    ARGUMENT,
)

RECORD_PAYLOAD: dict[int, Struct] = {
    Record.MARK: TEXT_RECORD,
    Record.SAMPLE: TEXT_RECORD,
    Record.STEP: STEP_RECORD,
    Record.NODE: NODE_RECORD,
    Record.RANGE_BEGIN: NODE_RECORD,
    Record.RANGE_END: NODE_RECORD,
    Record.OP: NODE_RECORD,
    Record.DEVICE_OP: DEVICE_OP_RECORD,
    Record.STREAM: STREAM_RECORD,
}

# Crash-time capacities: (region, structure or None for bytes, items).
CRASH_REGIONS: tuple[tuple[Region, Struct | None, int], ...] = (
    (Region.CRASH, CRASH_HEADER, 1),
    (Region.NATIVE_FRAMES, NATIVE_FRAME, 192),
    (Region.PYTHON_THREADS, PYTHON_THREAD, 256),
    (Region.PYTHON_FRAMES, PYTHON_FRAME, 2048),
    (Region.IMAGES, IMAGE, 512),
    (Region.STORAGE_HITS, STORAGE_HIT, 16),
    (Region.ALSO_CRASHED, ALSO_CRASHED, 32),
    (Region.ARENA, None, 256 * 1024),
    (Region.MAPS, None, 512 * 1024),
    (Region.MEMORY, MEMORY_BLOCK, 64),
    (Region.THREAD_STACKS, THREAD_STACK, 256),
    (Region.THREAD_FRAMES, None, 256 * 64 * 8),
    (Region.HOLDERS, HOLDER, 1024),
    (Region.ARGUMENTS, ARGUMENT, 64),
)
NAME_SLOTS = 1024  # of the first NAMES region; each next one has twice as many
NATIVE_HEAD_FRAMES = 128
NATIVE_TAIL_FRAMES = 32
THREAD_HEAD_FRAMES = 48
THREAD_TAIL_FRAMES = 16
THREAD_STACK_FRAMES = THREAD_HEAD_FRAMES + THREAD_TAIL_FRAMES
