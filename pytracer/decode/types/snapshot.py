"""One decoded process: frozen data, independent of the file format.

`reader.py` builds a `Snapshot` from one recording, `merge.py` a `Job` from all of them. Every value that may be missing
is None or empty; nothing here guesses. Times are CLOCK_MONOTONIC ns of that host, sizes are bytes, addresses are ints.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, cast

import msgspec

from pytracer.blackbox.note_codes import COLLECTIVES_HOOK, NoteCode
from pytracer.decode.types.devices import (
    CudaGraph,
    CudaStream,
    DeviceSegment,
    GpuCore,
    GpuCoreWish,
    OutOfMemory,
)
from pytracer.decode.types.groups import Group as Group
from pytracer.decode.types.groups import GroupList as GroupList
from pytracer.decode.types.host_counters import Usage, Witness
from pytracer.decode.types.journal import (
    AnyFact,
    Fact,
    HandledException,
    Note,
    P,
    Rank,
    UncaughtException,
    Versions,
    Wait,
)
from pytracer.decode.types.records import Record
from pytracer.decode.types.storage_table import StorageTable
from pytracer.decode.types.storages import CallSite as CallSite
from pytracer.decode.types.storages import Moment as Moment
from pytracer.decode.types.storages import PythonFrame as PythonFrame
from pytracer.decode.types.storages import Storage as Storage

_MOST_RANKS = 1 << 24  # of a job; more are no world size
_ELEMENT_BYTES = {
    **dict.fromkeys(("uint8", "int8", "bool"), 1),
    **dict.fromkeys(("float16", "bfloat16", "int16"), 2),
    **dict.fromkeys(("float32", "int32"), 4),
    **dict.fromkeys(("float64", "int64", "complex64"), 8),
    "complex128": 16,
}
_UNSIGNED_BYTES = {"uint16": 2, "uint32": 4, "uint64": 8}

FrameFound = Literal["exact", "unwound", "frame-pointer", "scanned", "unknown"]
HolderKindName = Literal["local", "cell", "global", "saved"]
ArgumentHowName = Literal["impl", "reference", "captured", "held"]
GuardSide = Literal["behind", "before"]
GuardMechanismName = Literal["markers", "protection"]  # MADV_GUARD_INSTALL, mprotect
CollectiveStateName = Literal["scheduled", "started", "completed", "failed", "ended"]  # "ended": how is not known
ThreadStackState = Literal["listed", "asked", "walking", "done", "faulted"]
HitKind = Literal["covering", "below", "above"]
Role = Literal["rank", "dataloader-worker", "child", "launcher", "process"]
StatusKind = Literal["exited", "signaled", "exception", "running", "vanished"]
Reporter = Literal["handler", "launcher", "black-box"]


class Damage(msgspec.Struct, frozen=True):
    """Something that could not be read."""

    file: str
    offset: int
    what: str


class SourceLine(msgspec.Struct, frozen=True):
    """A function and where it was in its source: the function of a frame, or one that was inlined into it."""

    function: str
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True)
class NativeFrame:
    """One native frame. `pc` already points into the call; `offset` is the ELF virtual address in the image.

    `found` is "exact", "unwound", "frame-pointer" or "scanned". `function` is filled by `symbolize.py`;
    `function_found`: "exact" (the address lies inside the symbol) or "guessed" (a symbol without a size lies
    before it). `offset_is_file`: known from the memory map only, `offset` counts bytes of the file. `lines`: from debug
    information, functions inlined at that place, the innermost first, then the function itself.
    """

    pc: int
    image: str | None
    offset: int | None
    build_id: str | None
    found: FrameFound
    function: str | None = None
    function_found: str | None = None
    offset_is_file: bool = False
    lines: tuple[SourceLine, ...] = ()


class NamedTensor(msgspec.Struct, frozen=True):
    """A storage that a named tensor had when `epoch` began.

    `role` is "parameter", "buffer", "gradient", "optimizer state" or "user"; `name` is complete, e.g. "exp_avg of
    layers.0.weight". `addr` and `nbytes` are those of the tensor's elements. `earlier`: the tensor has had another
    storage since.
    """

    name: str
    role: str
    base: int
    addr: int
    nbytes: int
    epoch: int
    earlier: bool


class HeldNumber(msgspec.Struct, frozen=True):
    """A whole number that a local variable of the crashed thread held: `expression` as in Python, `self.width`.

    `depth` is the place of its frame among those of the thread, 0 the innermost one. Since minor version 7.
    """

    expression: str
    value: int
    frame: PythonFrame
    depth: int


class HeldValue(msgspec.Struct, frozen=True):
    """What a variable of the program was when a process was asked to end, or for its stacks. Since minor version 13.

    `expression` as in Python: `self.step`, `state['best']`; `text` as an exception's variables have it: `7`, `0.25`,
    `True`, `None`, `list of 4`. `depth` is the place of its frame among those of the thread, 0 the innermost one.
    """

    expression: str
    text: str
    depth: int


class HeldArray(msgspec.Struct, frozen=True):
    """An array of NumPy that a local variable of the crashed thread held; `expression` as in Python: `self.rows`.

    `data` is the address of its first element, which is not its lowest one where a stride is negative. `strides` are in
    bytes; of the first four dimensions. `dtype` is None of a type that is no plain number. Its elements, where the
    handler read them: the least and the largest of integers, and of floats how many are NaN.
    """

    expression: str
    data: int
    dtype: str | None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    frame: PythonFrame
    depth: int
    minimum: int | None = None
    maximum: int | None = None
    nan_count: int | None = None
    has_infinity: int | None = None

    @property
    def element_bytes(self) -> int | None:
        """Bytes of an element; None where that is not known."""
        return _ELEMENT_BYTES.get(self.dtype or "") or _UNSIGNED_BYTES.get(self.dtype or "")

    @property
    def extent(self) -> tuple[int, int] | None:
        """Its lowest byte and the end of its highest one; None of one without elements, or of an unknown type."""
        nbytes = self.element_bytes
        if nbytes is None or len(self.shape) != len(self.strides) or min(self.shape, default=1) <= 0:
            return None
        steps = [(size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)]
        low, high = sum(step for step in steps if step < 0), sum(step for step in steps if step > 0)
        return self.data + low, self.data + high + nbytes

    @property
    def row_strides(self) -> tuple[int, ...] | None:
        """The strides of an array of that shape without gaps."""
        nbytes = self.element_bytes
        if nbytes is None:
            return None
        return tuple(nbytes * math.prod(self.shape[at + 1 :]) for at in range(len(self.shape)))

    @property
    def in_a_row(self) -> bool | None:
        """Whether its elements lie one behind the other, in order; None where that is not known."""
        rows = self.row_strides
        if rows is None or len(self.shape) != len(self.strides):
            return None
        pairs = zip(self.shape, self.strides, rows, strict=True)
        return all(stride == row for size, stride, row in pairs if size != 1)


@dataclass(frozen=True)
class Holder:
    """What held a tensor of the storage at `base` when the process died, as the handler found it.

    `base` is 0 for a tensor without memory; `elements` is what it should have: 0 for an empty one, more for one whose
    storage was resized to nothing, or that never had memory (device "meta"). Before minor version 2 always 0.
    `offset` is that of its first element in elements; None before minor version 12 where it is not 0.

    `kind` is "local", "cell" or "global", with `expression` as in Python, e.g. `caches[1]`, and the frame of which
    thread (`own`: the crashed one); or "saved", then `expression` is the class of the autograd node, `distance` edges
    from where the search began.
    """

    kind: HolderKindName
    expression: str
    base: int
    frame: PythonFrame | None = None
    own: bool = False
    pthread: int | None = None
    distance: int = 0
    elements: int = 0
    offset: int | None = 0


@dataclass(frozen=True)
class Argument:
    """A tensor that a register or the stack of the crashed thread referred to; a word of a stack may be stale.

    `base` is 0 for a tensor without memory, `offset` that of its first element in elements. `sizes` are those of the
    first 8 of `dimensions`. `minimum` and `maximum` are known of integer tensors of up to a
    million elements, unless `--no-values`; of others `nans`, how many numbers are NaN, where a complex element is
    two, and whether one is `infinite`. `strides` are in elements.

    `frame` and `outer_frame` are places in `Crash.native_stack`: of the innermost and of the outermost frame whose
    stack has such a word; None for registers. `how`: a TensorImpl, a reference to an at::Tensor, captured by a
    lambda that a worker runs, or only held by a local variable of the innermost Python frames. An `undefined` tensor
    has none of the rest.
    """

    impl: int
    base: int
    elements: int
    offset: int
    sizes: tuple[int, ...]
    dimensions: int
    dtype: str | None
    device: str | None
    minimum: int | None
    maximum: int | None
    frame: int | None
    outer_frame: int | None
    register: str | None
    how: ArgumentHowName
    undefined: bool = False
    strides: tuple[int, ...] = ()
    nans: int | None = None
    infinite: bool | None = None

    @property
    def is_integer(self) -> bool:
        """Whether it may be an index."""
        return self.dtype in ("uint8", "int8", "int16", "int32", "int64")

    @property
    def is_complex(self) -> bool:
        """Whether an element is two numbers."""
        return (self.dtype or "").startswith("complex")

    @property
    def element_bytes(self) -> int | None:
        """Bytes of an element; None of a type whose size is not known here, such as a quantized one."""
        return _ELEMENT_BYTES.get(self.dtype or "")

    @property
    def data(self) -> int | None:
        """Where its first element is, as data_ptr() gives it; None without memory, or of unknown elements."""
        nbytes = self.element_bytes
        return self.base + self.offset * nbytes if self.base and nbytes is not None else None

    @property
    def steps(self) -> tuple[int, ...]:
        """`strides`; where these are not known, those of a tensor without gaps."""
        return self.strides or tuple(
            math.prod(size or 1 for size in self.sizes[at + 1 :]) for at in range(len(self.sizes))
        )


class GuardDamage(msgspec.Struct, frozen=True):
    """Changed bytes beside a guarded storage, found at `found_ns`, when it was freed or at the end.

    `side` is "behind" or "before", `offset` that of the first one from the base, `nbytes` reach to the last one,
    `content` are the first ones.
    """

    side: GuardSide
    offset: int
    nbytes: int
    content: bytes
    found_ns: int | None


class Guarded(msgspec.Struct, frozen=True):
    """A guarded storage, alive or in quarantine: its pages are [low, high), and a guard lies on either side.

    `number`: order among the guarded storages; of two that overlap the later one counts.
    """

    storage: Storage
    low: int
    high: int
    number: int
    damage: GuardDamage | None = None


@dataclass(frozen=True)
class Guard:
    """Guard mode of one process. `mechanism` is "markers" (MADV_GUARD_INSTALL) or "protection" (mprotect).

    `every`: one in this many storages. `counts`: as schema.GUARD_REGION. `damaged`: all damage, also of storages whose
    record was reused. `storages` is empty in a light snapshot.
    """

    armed: bool
    mechanism: GuardMechanismName | None
    every: int
    min_bytes: int
    alignment: int
    underrun: bool
    budget_bytes: int
    budget_mappings: int
    fallback_errno: int | None
    pools: tuple[tuple[int, int], ...]
    counts: dict[str, int]
    storages: tuple[Guarded, ...] = ()
    damaged: tuple[Guarded, ...] = ()


@dataclass(frozen=True)
class Event:
    """One record of a ring.

    `kind` is the name of `schema.Record`, or COLLECTIVE. `tid` is 0 for an ended thread whose context was reused.
    """

    mono_ns: int
    tid: int
    thread: str
    kind: str
    data: Record | Collective


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective or point-to-point operation of this process, in its last recorded state.

    `sequence_nr` counts from 1 among the collectives of its group; of point-to-point operations among those of the
    group with that peer and direction. `root` and `peer` are ranks in the group. `python` is the innermost Python frame
    of the call, `caller` the first one outside torch.
    """

    sequence_nr: int
    op: str  # e.g. "all_reduce"
    backend: str | None  # e.g. "gloo"
    state: CollectiveStateName
    started_ns: int | None
    completed_ns: int | None
    buffer_addr: int | None
    storage_addr: int | None
    numel: int | None
    nbytes: int | None
    sizes: tuple[int, ...]
    dtype: str | None  # torch's name, e.g. "float32"
    tid: int
    number: int = 0  # order of the call in this process, from 1
    group: str | None = None  # name of the process group
    scheduled_ns: int | None = None
    root: int | None = None
    peer: int | None = None
    tag: int | None = None
    reduce_op: str | None = None  # "sum", "avg", "product", "min", "max", ...
    point_to_point: bool = False
    async_op: bool = False
    timeout_ms: int | None = None
    output_addr: int | None = None
    output_numel: int | None = None
    output_nbytes: int | None = None
    python: PythonFrame | None = None
    caller: PythonFrame | None = None
    step: int | None = None
    scope: str | None = None  # what the calling thread was busy with, e.g. "FSDP::all_gather (layers.0)"
    epoch: int | None = None  # its buffers were allocated in an earlier one
    output_storage_addr: int | None = None
    # Queued on a device after its progress was last read: it may have been done.
    progress_unknown: bool = False
    stream: int | None = None  # current CUDA stream of the call
    cuda_graph: int | None = None  # number of the CUDA graph that it was captured into

    @property
    def place(self) -> PythonFrame | None:
        """The line to name: the first outside torch, else the innermost."""
        return self.caller or self.python


class ScopedTensor(msgspec.Struct, frozen=True):
    """A tensor that an operator of FSDP's worked on, `index` of `count`; it was allocated before `epoch`."""

    addr: int
    nbytes: int
    role: str  # "unsharded_parameter" | "unsharded_gradient"
    scope: str | None
    index: int
    count: int
    epoch: int
    mono_ns: int


class Mapping(msgspec.Struct, frozen=True):
    """One line of /proc/self/maps at the crash."""

    start: int
    end: int
    permissions: str
    offset: int
    path: str  # "" for anonymous memory


class ThreadInfo(msgspec.Struct, frozen=True):
    """A thread that recorded something, or crashed."""

    tid: int
    name: str
    pthread: int
    ended: bool
    record_count: int


@dataclass(frozen=True)
class StorageHit:
    """A storage near the fault address, found by the handler itself. `kind`: see `schema.STORAGE_HIT`."""

    kind: HitKind
    storage: Storage


class Overrun(msgspec.Struct, frozen=True):
    """A storage behind whose block the heap is overwritten: a live one, or the one that the thread freed last.

    `word` stands where malloc() notes the size of the next block, and is none. `before`: that of its own block, which
    is noted before it.
    """

    storage: Storage
    word: int
    before: bool = False


class AlsoCrashed(msgspec.Struct, frozen=True):
    """A thread that crashed while another one was being reported."""

    tid: int
    signal: int
    code: int
    pc: int
    fault_addr: int
    mono_ns: int


@dataclass(frozen=True)
class SignalSend:
    """A signal that this process sent, noted before the call: to a process, or `to_group` to a process group.

    `result` is 0, an errno, or None when the call had not returned at the end of the recording. `target_ticks` and
    `target_state` are the target's as of then, /proc/<pid>/stat; None where they could not be read. `stack`: the Python
    lines that sent it, innermost first; `image`: the library or program that called kill().
    """

    signal: int
    target: int
    to_group: bool
    result: int | None
    target_ticks: int | None
    target_state: str | None
    tid: int
    mono_ns: int
    stack: tuple[PythonFrame, ...] = ()
    image: str | None = None
    image_offset: int | None = None


class Unmapping(msgspec.Struct, frozen=True):
    """A call of munmap() that gave `nbytes` from `addr` on back, at `mono_ns`, on thread `tid`.

    `caller` is the address that it returned to; `stack`: the Python lines of that thread, innermost first, where known.
    """

    addr: int
    nbytes: int
    mono_ns: int
    tid: int
    caller: int
    stack: tuple[PythonFrame, ...] = ()


@dataclass(frozen=True)
class LoadedImage:
    """A shared object, or the program itself, that was loaded at the crash."""

    path: str
    start: int
    end: int
    bias: int
    build_id: str | None


class MemoryBlock(msgspec.Struct, frozen=True):
    """Memory near the value of a register, as it was at the crash. `content` begins at `addr`."""

    register: str
    value: int
    addr: int
    content: bytes


@dataclass(frozen=True)
class ThreadStack:
    """A thread that did not crash, innermost frame first.

    `gap` frames are left out before the last `tail` ones. `state` is "listed" (no stack was taken), "asked" or
    "walking" (it did not answer in time), "done" or "faulted" (the stack could not be walked to its end).
    """

    tid: int
    name: str
    pthread: int | None
    state: ThreadStackState
    native_stack: tuple[NativeFrame, ...] = ()
    native_total: int = 0
    gap: int = 0
    tail: int = 0
    complete: bool = False
    syscall: int | None = None
    stopped: bool = False


@dataclass(frozen=True)
class Crash:
    """What the crash handler wrote."""

    complete: bool
    repaired: bool
    tid: int
    thread_name: str
    signal: int
    code: int
    fault_addr: int
    sender_pid: int | None
    mono_ns: int
    registers: dict[str, int]
    pc: int
    sp: int
    error_code: int | None
    stack: tuple[int, int] | None  # [low, high) of the crashed thread's stack
    code_bytes: bytes  # machine code from `pc` on
    node: str | None
    node_sequence_nr: int | None
    python_matched: bool
    python_stack: tuple[PythonFrame, ...]  # of the crashed thread, innermost first
    python_threads: tuple[tuple[int, tuple[PythonFrame, ...]], ...]  # all: (pthread, frames)
    native_stack: tuple[NativeFrame, ...]
    native_total: int
    native_gap: int  # frames left out after the first `len - tail`
    native_tail: int
    mappings: tuple[Mapping, ...]
    hits: tuple[StorageHit, ...]
    also_crashed: tuple[AlsoCrashed, ...]
    steps_done: tuple[str, ...]
    steps_faulted: tuple[str, ...]
    step_ns: dict[str, int]
    steps_late: tuple[str, ...] = ()  # given up: they took too long
    abort_text: str | None = None  # what the C library printed before it called abort()
    sender_command: tuple[str, ...] = ()  # argv of the process that sent the signal
    file_nbytes: int | None = None  # size at the crash of the mapped file that the fault address lies in
    file_room: int | None = None  # bytes free on its file system at the crash
    file_system: int | None = None  # statfs(2) f_type
    memory: tuple[MemoryBlock, ...] = ()
    images: tuple[LoadedImage, ...] = ()  # all that were loaded
    code_pointers: tuple[NativeFrame, ...] = ()  # registers and words of the stack that point at code; "scanned"
    threads: tuple[ThreadStack, ...] = ()  # all but the crashed one
    threads_how: str | None = None  # "helper" (ptrace) | "signal"
    threads_total: int = 0  # threads that were alive beside the crashed one, also those without an entry
    helper_error: int | None = None  # errno when the launcher's helper refused
    arrays: tuple[HeldArray, ...] = ()  # of the same frames
    numbers: tuple[HeldNumber, ...] = ()  # of the crashed thread's innermost frames, which come first
    other_numbers: tuple[HeldNumber, ...] = ()  # of other threads, where the crashed one runs no Python
    values: tuple[HeldValue, ...] = ()  # of the program's frames on that thread; empty after a crash
    holders: tuple[Holder, ...] = ()  # in the order of the search: innermost frames first
    holders_truncated: bool = False  # the search reached one of its limits
    arguments: tuple[Argument, ...] = ()  # of native code: registers first, then the stack from the innermost frame on
    arguments_truncated: bool = False
    overruns: tuple[Overrun, ...] = ()  # as the handler found them; only of glibc's malloc()
    unmapping: Unmapping | None = None  # the latest one around the fault address; below preload only
    handled: HandledException | None = (
        None  # of the crashed thread, else of the main one: it was in an `except` or the like
    )


class Worker(msgspec.Struct, frozen=True):
    """A DataLoader worker. `batch_indices` are words such as "0-3,7"; `loading`: that batch was not done."""

    worker_id: int | None
    num_workers: int | None
    seed: int | None
    dataset: str | None  # name of its class
    batch_count: int | None
    batch_indices: str | None
    batch_mono_ns: int | None
    loading: bool


@dataclass(frozen=True)
class Snapshot:
    """One recording, decoded."""

    path: str
    version: tuple[int, int]
    pid: int
    ppid: int
    uid: int
    host: str
    boot_id: str
    arch: str
    page_bytes: int
    start_ticks: int
    created_mono_ns: int
    created_wall_ns: int
    state: str  # name of schema.State
    exit_code: int | None
    exit_mono_ns: int | None
    step: int | None
    step_source: str | None  # "pytracer.step" | "optimizer steps"
    preloaded: bool
    python_minor: int | None
    argv: tuple[str, ...]
    environment: dict[str, str]
    rank: Rank | None  # the last one
    versions: Versions
    facts: tuple[AnyFact, ...]
    events: tuple[Event, ...]  # all rings, oldest first
    threads: tuple[ThreadInfo, ...]
    collectives: tuple[Collective, ...]  # in the order of their calls
    storages: StorageTable  # live and freed, those of devices too
    waits: tuple[Wait, ...]
    crash: Crash | None
    counts: dict[str, int]
    damage: tuple[Damage, ...] = ()
    dataloader_worker: bool = False  # ran torch/utils/data/_utils/worker.py itself
    live: Crash | None = None  # all stacks of the running process, taken on request; nothing crashed
    ending: Crash | None = None  # the stacks of the thread that ended the process by exit() or _exit(); nothing crashed
    groups: Sequence[Group] = ()  # process groups in the order of their creation
    worker: Worker | None = None  # what it wrote down as one
    sends: tuple[SignalSend, ...] = ()  # oldest first; its own, not those of a parent that it was forked from
    process_group: int | None = None  # when recording started
    last_mono_ns: int | None = None  # time of the last record: the process was alive then
    segments: tuple[DeviceSegment, ...] = ()  # by address
    cuda_graphs: tuple[CudaGraph, ...] = ()
    cuda_streams: tuple[CudaStream, ...] = ()
    out_of_memory: tuple[OutOfMemory, ...] = ()  # of devices
    scoped_tensors: tuple[ScopedTensor, ...] = ()  # the last ones, oldest first
    named: dict[int, tuple[NamedTensor, ...]] = field(default_factory=dict)  # by base address of the storage
    guard: Guard | None = None
    light: bool = False  # read partially: no records, storages, modules, buckets, nor a crash's memory

    @cached_property
    def own_groups(self) -> Sequence[Group]:
        """The process groups of which it is a member, and those that it never completed making."""
        if isinstance(self.groups, GroupList):
            return tuple(self.groups.own.values())
        return tuple(group for group in self.groups if group.is_own)

    @property
    def notes(self) -> tuple[Note, ...]:
        """What the recorder noted about itself, oldest first."""
        return tuple(fact.data for fact in self.recorded(Note))

    @property
    def main_pthread(self) -> int | None:
        """Of the main thread, whose tid is the pid: by that the stacks of its Python threads are told apart."""
        return next((item.pthread for item in self.threads if item.tid == self.pid), None)

    def recorded(self, kind: type[P]) -> Sequence[Fact[P]]:
        """The journal's entries of one kind, oldest first."""
        return cast("Sequence[Fact[P]]", self._by_kind.get(kind, ()))

    @cached_property
    def _by_kind(self) -> dict[type, list[AnyFact]]:
        found: dict[type, list[AnyFact]] = {}
        for fact in self.facts:
            found.setdefault(type(fact.data), []).append(fact)
        return found

    @cached_property
    def left_mono_ns(self) -> int | None:
        """When the process began to leave its job's process group, for good."""
        own = [fact for fact in self.recorded(Rank) if fact.mono_ns >= self.created_mono_ns]
        return own[-1].mono_ns if own and own[-1].data.left else None

    @cached_property
    def lacks_collectives(self) -> bool:
        """Whether the hook that records collectives is known not to be installed."""
        return any(
            note.code == NoteCode.TORCH_HOOKS or (note.code == NoteCode.HOOK and note.subject == COLLECTIVES_HOOK)
            for note in self.notes
        )

    @cached_property
    def storage_epochs(self) -> Counter[tuple[int, int | None]]:
        """The epochs in which storages were made or freed, each with its beginning (ns), and how many: decodes all."""
        return Counter(
            (moment.epoch, moment.mono_ns)
            for item in self.storages
            for moment in (item.allocated, item.freed)
            if moment is not None
        )

    def live_bytes(self, *, on_cpu: bool) -> int | None:
        """Bytes of live storages on the CPU, or on devices; None if they were not read or not recorded."""
        if self.light or (not on_cpu and not self.segments):
            return None
        return self.storages.live_bytes(on_cpu=on_cpu)


def records_values(snapshot: Snapshot) -> bool:
    """Whether numbers were recorded: not below `--no-values`."""
    return snapshot.environment.get("PYTRACER_NO_VALUES") != "1"


class LaunchedTask(msgspec.Struct, frozen=True):
    """The task of srun or mpirun that a launcher ran in. `step`: the same for the tasks of one step only."""

    launcher: str
    step: str
    rank: int
    count: int | None = None
    node: str | None = None


class SlurmState(msgspec.Struct, frozen=True):
    """What scontrol said of the job and its step when a task of it had failed, in Slurm's own words."""

    job_state: str | None = None
    job_reason: str | None = None
    job_time_limit: str | None = None
    step_state: str | None = None
    step_time_limit: str | None = None
    why: str | None = None  # there is nothing more

    @property
    def time_limit(self) -> tuple[str, str] | None:
        """The time limit that ended the step: whose ("job" or "step"), and Slurm's word for its length."""
        if self.step_state == "TIMEOUT":
            return "step", self.step_time_limit or ""
        if self.job_reason == "TimeLimit" or self.job_state == "TIMEOUT":
            return "job", self.job_time_limit or ""
        return None


@dataclass(frozen=True)
class LauncherRecord:
    """`run.json` of `pytracer run`: what the launcher itself saw.

    Below srun and mpirun there is one for each task, `run.RANK.json`; `task` is then that of the step.
    """

    pid: int
    host: str
    boot_id: str
    command: tuple[str, ...]
    cwd: str
    started_wall_ns: int
    started_mono_ns: int
    ended_mono_ns: int | None
    child_pid: int | None
    exit_code: int | None
    signal: int | None
    usage: Usage | None = None
    witness: Witness | None = None
    gpu_core: GpuCoreWish | None = None
    redacted: int = 0  # secrets that were replaced in `command` before it was written
    task: LaunchedTask | None = None
    killed_for: str | None = None  # why the launcher ended the job, with --hang-action kill
    killed: tuple[int, ...] = ()  # what had not ended after that, and got its SIGKILL
    slurm: SlurmState | None = None


@dataclass(frozen=True)
class Process:
    """One process of the job: its recording, and how it ended, if observed.

    `status_kind` is "exited", "signaled", "exception", "running" or "vanished"; `reported_by` is "handler", "launcher"
    or "black-box".
    """

    snapshot: Snapshot
    role: Role
    rank: int | None
    local_rank: int | None
    world_size: int | None
    status_kind: StatusKind
    exit_code: int | None
    signal: int | None
    reported_by: Reporter | None
    ended_mono_ns: int | None
    exception: UncaughtException | None  # the one that ended it
    exception_mono_ns: int | None = None  # when it was first seen; it may have reached the top later
    parent_rank: int | None = None  # of a process that is no rank: the rank that started it, or its parent
    attempt: int | None = None  # of torchrun, from 0
    usage: Usage | None = None  # of it and of what it reaped, as its parent saw it
    running_mono_ns: int | None = None  # when its recording was read and it was "running" in a job that still ran
    outlived_mono_ns: int | None = None  # "running" when the command of every launcher that saw it had ended: when


class FlightUse(msgspec.Struct, frozen=True):
    """The use of one dump. `known`: entries that the recording has, too; `added`: those that it lacks.

    `pid` is that of the process it was added to; None if it was not used, which `notes` explain. `last` maps group
    names to the highest sequence number.
    """

    path: str
    rank: int | None
    entries: int
    pid: int | None
    known: int
    added: int
    last: dict[str, int]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """All processes of one run directory, or of several that one job was recorded into."""

    directory: str
    launcher: LauncherRecord | None
    processes: tuple[Process, ...]
    damage: tuple[Damage, ...] = ()
    replaced_by_exec: tuple[str, ...] = ()  # recordings of programs that executed another one
    flight: tuple[FlightUse, ...] = ()
    gpu_cores: tuple[GpuCore, ...] = ()
    directories: tuple[str, ...] = ()  # all of them, of a job that was recorded into several
    more_launchers: tuple[LauncherRecord, ...] = ()  # of the other tasks of a step, and of other directories
    digests: int | None = None  # of how many digests it was made; None: of recordings
    recordings: tuple[str, ...] = ()  # of a job from digests: folders and URLs that may have the recordings

    @property
    def launchers(self) -> tuple[LauncherRecord, ...]:
        """The records of all launchers."""
        return (*((self.launcher,) if self.launcher is not None else ()), *self.more_launchers)

    def launcher_of(self, snapshot: Snapshot) -> LauncherRecord | None:
        """The launcher that observed a process: its own, else one that held it, else one of its machine."""
        return launcher_of(self.launchers, snapshot)

    @cached_property
    def ranks(self) -> tuple[Process, ...]:
        """The processes that are ranks, in order of rank."""
        return tuple(sorted((p for p in self.processes if p.role == "rank"), key=lambda p: p.rank or 0))

    @cached_property
    def unrecorded_ranks(self) -> tuple[int, ...]:
        """The ranks of the job, by the largest world size that a rank noted, that no process was."""
        size = min(max((item.world_size or 0 for item in self.ranks), default=0), _MOST_RANKS)
        known = {item.rank for item in self.ranks}
        return tuple(rank for rank in range(size) if rank not in known)


def launcher_of(launchers: Sequence[LauncherRecord], s: Snapshot) -> LauncherRecord | None:
    """See `Job.launcher_of`."""
    near = [item for item in launchers if (item.host, item.boot_id) == (s.host, s.boot_id)]
    own = next((item for item in near if item.child_pid == s.pid), None)
    seen = (item for item in near if item.witness is not None and item.witness.process(s.pid, s.start_ticks))
    return own or next(seen, None) or next(iter(near), None)
