"""The report: what `pytracer inspect` found out, as plain data.

This is the product; text and JSON are views of it, `docs/reference/report.md` is its description. The parts that
are about one process's threads and memory lie in `process.py`; neither imports anything else of ours.
Any field may be None. Addresses are "0x..." strings, times are ns since the run started, sizes are bytes. Keys may
be added, never renamed or re-typed within a version; enumerations (plain strings here) may grow.
"""

from __future__ import annotations

from typing import Literal

from pytracer.report.evidence import Evidence as Evidence
from pytracer.report.evidence import Quotation as Quotation
from pytracer.report.process import AlsoCrashed as AlsoCrashed
from pytracer.report.process import Bucket as Bucket
from pytracer.report.process import CudaGraph as CudaGraph
from pytracer.report.process import CudaGraphUse as CudaGraphUse
from pytracer.report.process import CudaStream as CudaStream
from pytracer.report.process import DataLoaderWorker as DataLoaderWorker
from pytracer.report.process import Fault as Fault
from pytracer.report.process import Fsdp as Fsdp
from pytracer.report.process import GpuCoreReport as GpuCoreReport
from pytracer.report.process import GpuExceptionReport as GpuExceptionReport
from pytracer.report.process import GpuPointer as GpuPointer
from pytracer.report.process import GuardDamage as GuardDamage
from pytracer.report.process import GuardReport as GuardReport
from pytracer.report.process import Holder as Holder
from pytracer.report.process import Image as Image
from pytracer.report.process import MappingReport as MappingReport
from pytracer.report.process import MemoryBlock as MemoryBlock
from pytracer.report.process import MemoryRange as MemoryRange
from pytracer.report.process import NamedTensor as NamedTensor
from pytracer.report.process import NativeFrame as NativeFrame
from pytracer.report.process import Neighbor as Neighbor
from pytracer.report.process import Operand as Operand
from pytracer.report.process import Origin as Origin
from pytracer.report.process import Part as Part
from pytracer.report.process import Pointer as Pointer
from pytracer.report.process import PythonFrame as PythonFrame
from pytracer.report.process import Region as Region
from pytracer.report.process import SourceLine as SourceLine
from pytracer.report.process import StackBounds as StackBounds
from pytracer.report.process import StackCycle as StackCycle
from pytracer.report.process import StorageReport as StorageReport
from pytracer.report.process import Thread as Thread
from pytracer.report.process import ThreadReport as ThreadReport

# What today's rules give. A reader of the JSON may meet more, so the fields below are plain strings.
Confidence = Literal["certain", "likely", "possible", "unknown"]
VerdictClass = Literal[
    "null-dereference",
    "wild-pointer",
    "use-after-free",
    "out-of-bounds",
    "device-pointer-on-host",
    "stack-overflow",
    "truncated-mapping",
    "shm-exhausted",
    "heap-corruption",
    "abort",
    "illegal-instruction",
    "arithmetic",
    "trap",
    "forbidden-system-call",
    "read-only-write",
    "hardware-error",
    "oom-kill",
    "external-kill",
    "python-exception",
    "exit",
    "collective-mismatch",
    "missing-rank",
    "hang",
    "cuda-error",
    "misuse",
    "clean",
    "unknown",
]
PassedValue = int | str | list[int] | None  # what a rank passed: a root, an operation, a dtype, sizes
SCHEMA = "pytracer-report"
VERSION = 1


class Run(Part, frozen=True):
    """The run as a whole. `started` is wall-clock time in ISO 8601, UTC.

    `redacted`: secrets in `command` that were replaced before it was written.
    """

    id: str | None = None
    directory: str | None = None
    started: str | None = None
    launcher: str | None = None
    command: list[str] | None = None
    world_size: int | None = None
    hosts: list[str] | None = None
    torch: str | None = None
    cuda: str | None = None
    python: str | None = None
    redacted: int | None = None


class Verdict(Part, frozen=True, rename={"class_": "class"}):
    """The one headline. `class` is one of the classes in docs/reference/report.md."""

    class_: str | None = None
    confidence: str | None = None
    rank: int | None = None
    pid: int | None = None
    summary: str | None = None
    advice: str | None = None
    evidence: list[Evidence] | None = None


class Finding(Part, frozen=True):
    """What one rule concluded."""

    id: str | None = None
    confidence: str | None = None
    ranks: list[int] | None = None
    summary: str | None = None
    evidence: list[Evidence] | None = None
    missing: list[str] | None = None
    advice: str | None = None


class Checked(Part, frozen=True):
    """A rule that did not fire. `result` is "not-found" or "cannot-decide"."""

    id: str | None = None
    result: str | None = None
    why: str | None = None


class Status(Part, frozen=True):
    """How a process ended: "exited", "signaled", "exception", "running" or "vanished", and who says so."""

    kind: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    reported_by: str | None = None


class Signal(Part, frozen=True):
    """The signal that ended a process. `code` is e.g. "SEGV_MAPERR"; the sender is known for kill().

    `sender_command` is the command line of the process that sent it.
    """

    number: int | None = None
    name: str | None = None
    code: str | None = None
    sender_pid: int | None = None
    sender_command: list[str] | None = None


class ExceptionReport(Part, frozen=True):
    """An uncaught exception: `language` is "Python" or "C++"; of a C++ one `message` is what()."""

    type: str | None = None
    message: str | None = None
    python_stack: list[PythonFrame] | None = None
    language: str | None = None


class AutogradNode(Part, frozen=True):
    """The autograd node that was running."""

    name: str | None = None
    sequence_nr: int | None = None
    thread: str | None = None


class LastOp(Part, frozen=True):
    """The last operator that was recorded."""

    name: str | None = None
    phase: str | None = None


class CurrentStream(Part, frozen=True):
    """The CUDA stream that a thread worked on when `record` was made, its last one: "NODE AddmmBackward0".

    `crashed_thread`: it is the thread that crashed.
    """

    device: str | None = None
    stream: str | None = None
    record: str | None = None
    thread: str | None = None
    crashed_thread: bool | None = None


class CollectiveBuffer(Part, frozen=True):
    """The first input of a collective, or its first output.

    `what` says what it is: a DDP bucket, what a communication hook sends, a buffer of FSDP's, a named storage, or where
    the storage was allocated. `names` are all that are known, the best first.
    """

    addr: str | None = None
    names: list[str] | None = None
    bucket_index: int | None = None
    what: str | None = None


class LastCollective(Part, frozen=True):
    """The last collective of a process. `state` is "scheduled", "started", "completed", "failed" or "queued".

    "queued": on a device's stream, after the last look at how far that one had got; it may have been done. `stream`:
    the current one of the call. `cuda_graph`: the graph that it was captured into.

    `root` and `peer` are ranks in the group. `python` is the line that called it, outside torch where that is known.
    `waited_ns`: from the call to its end, or to that of the process. `output` is None where it is the input itself.
    """

    group: str | None = None
    op: str | None = None
    sequence_nr: int | None = None
    state: str | None = None
    sizes: list[int] | None = None
    dtypes: list[str] | None = None
    root: int | None = None
    reduce_op: str | None = None
    buffer: CollectiveBuffer | None = None
    output: CollectiveBuffer | None = None
    peer: int | None = None
    tag: int | None = None
    python: PythonFrame | None = None
    waited_ns: int | None = None
    stream: str | None = None
    cuda_graph: int | None = None


class DdpBucket(Part, frozen=True):
    """One bucket of a DDP module, as last seen."""

    index: int | None = None
    addr: str | None = None
    nbytes: int | None = None
    generation: int | None = None
    parameters: list[str] | None = None


class Ddp(Part, frozen=True):
    """One DDP module, as last seen."""

    module: str | None = None
    buckets: list[DdpBucket] | None = None
    has_rebuilt: bool | None = None
    hook: str | None = None
    ready: list[str] | None = None


class FsdpParameter(Part, frozen=True):
    """A parameter of an FSDP unit: `numel` of the whole, `shard_numel` of this rank's part with padding (FSDP2)."""

    fqn: str | None = None
    numel: int | None = None
    shard_numel: int | None = None
    shard_addr: str | None = None


class FsdpUnit(Part, frozen=True):
    """One FSDP unit, as last seen. `state` is "sharded" or "unsharded".

    `shard_addr` is that of a flat parameter's shard (FSDP1); `replicas` is above 1 with hybrid sharding (HSDP).
    """

    module: str | None = None
    unit: str | None = None
    wrapper: str | None = None
    state: str | None = None
    world_size: int | None = None
    shard_rank: int | None = None
    replicas: int | None = None
    shard_addr: str | None = None
    parameters: list[FsdpParameter] | None = None


class Memory(Part, frozen=True):
    """Memory of the process at its end. `max_rss` is the most at one time, of it or of a child that it reaped."""

    rss: int | None = None
    max_rss: int | None = None
    cpu_storages_bytes: int | None = None
    cuda_allocated_bytes: int | None = None


class Usage(Part, frozen=True):
    """Processor time and page faults from disk, of the process and of the children that it reaped."""

    user_seconds: float | None = None
    system_seconds: float | None = None
    major_faults: int | None = None


class ProcessReport(Part, frozen=True):
    """One process. `primary`: its death started it all (True), followed (False), or it is undecided (None).

    `why` explains `primary`; `notes` are what the recorder itself could not do. `threads_found` says how the stacks of
    the other threads were taken, `threads_total` how many there were. `abort_text` is what the C library printed before
    it called abort(). `parent_rank`: of a process that is no rank, the rank it works for. `attempt`: from 0.
    `redacted`: secrets in command lines and variables that were replaced before they were written.
    """

    pid: int | None = None
    ppid: int | None = None
    host: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    role: str | None = None
    command: list[str] | None = None
    started: int | None = None
    ended: int | None = None
    status: Status | None = None
    primary: bool | None = None
    why: str | None = None
    signal: Signal | None = None
    fault: Fault | None = None
    thread: Thread | None = None
    python_stack: list[PythonFrame] | None = None
    native_stack: list[NativeFrame] | None = None
    threads: list[ThreadReport] | None = None
    registers: dict[str, str] | None = None
    exception: ExceptionReport | None = None
    step: int | None = None
    autograd_node: AutogradNode | None = None
    last_op: LastOp | None = None
    current_stream: CurrentStream | None = None
    last_collective: LastCollective | None = None
    recent_collectives: list[LastCollective] | None = None  # the last one of each op, newest first
    ddp: list[Ddp] | None = None
    fsdp: list[FsdpUnit] | None = None
    cuda_graphs: list[CudaGraph] | None = None
    cuda_streams: list[CudaStream] | None = None
    memory: Memory | None = None
    usage: Usage | None = None
    environment: dict[str, str] | None = None
    notes: list[str] | None = None
    abort_text: str | None = None
    threads_found: str | None = None
    threads_total: int | None = None
    stack_cycle: StackCycle | None = None
    also_crashed: list[AlsoCrashed] | None = None
    pointers: list[Pointer] | None = None
    memory_blocks: list[MemoryBlock] | None = None
    images: list[Image] | None = None
    mappings: list[MemoryRange] | None = None
    parent_rank: int | None = None
    attempt: int | None = None
    worker: DataLoaderWorker | None = None
    guard: GuardReport | None = None
    gpu_core: GpuCoreReport | None = None
    redacted: int | None = None


class MismatchVariant(Part, frozen=True):
    """The ranks that made the same call, and how it looked: "broadcast float32 [10, 3] from rank 0"."""

    ranks: list[int] | None = None
    call: str | None = None
    state: str | None = None
    python: PythonFrame | None = None


class Mismatch(Part, frozen=True):
    """A collective on which ranks disagree, in `field`: "op", "root", "reduce_op", "dtype", "size" or "shape".

    `by_rank` maps each rank to its value of the field. `variants`: the largest first. `odd_ranks`: those that the
    majority outvotes; None when there is none. `silent`: every rank was told that the operation succeeded.
    """

    sequence_nr: int | None = None
    field: str | None = None
    by_rank: dict[str, PassedValue] | None = None
    variants: list[MismatchVariant] | None = None
    odd_ranks: list[int] | None = None
    silent: bool | None = None


class Group(Part, frozen=True):
    """A process group. `last` maps each rank to the sequence number of its last collective; None: not known.

    `missing_ranks` did not call the first collective, of number `missing_sequence_nr`, that others wait in.
    `unknown_ranks` left no readable record.
    """

    name: str | None = None
    description: str | None = None
    backend: str | None = None
    ranks: list[int] | None = None
    last: dict[str, int | None] | None = None
    mismatch: Mismatch | None = None
    missing_ranks: list[int] | None = None
    missing_sequence_nr: int | None = None
    unknown_ranks: list[int] | None = None


class Collectives(Part, frozen=True):
    """What is known about collectives across ranks."""

    groups: list[Group] | None = None


class DamageReport(Part, frozen=True):
    """Something that could not be read."""

    file: str | None = None
    offset: int | None = None
    what: str | None = None


class Attempt(Part, frozen=True):
    """An attempt of torchrun's, or a job before the last one of several, judged alone."""

    attempt: int | None = None
    verdict: Verdict | None = None


class FlightRecorderDump(Part, frozen=True):
    """A dump of torch's Flight Recorder. `pid`: the process it was added to, None when it was not used.

    `known`: its entries that the black box has, too; `added`: those that it has not. `last` maps each group to the
    highest sequence number.
    """

    file: str | None = None
    rank: int | None = None
    pid: int | None = None
    entries: int | None = None
    known: int | None = None
    added: int | None = None
    last: dict[str, int] | None = None
    notes: list[str] | None = None


class Report(Part, frozen=True):
    """The whole report, version 1."""

    schema: str = SCHEMA
    version: int = VERSION
    run: Run | None = None
    verdict: Verdict | None = None
    findings: list[Finding] | None = None
    checked: list[Checked] | None = None
    processes: list[ProcessReport] | None = None
    collectives: Collectives | None = None
    damage: list[DamageReport] | None = None
    counts: dict[str, int] | None = None
    attempts: list[Attempt] | None = None
    flight_recorder: list[FlightRecorderDump] | None = None
