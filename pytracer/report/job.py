"""The report of `pytracer inspect` as plain data. Text and JSON are views of it.

`process.py` has the parts about threads and memory of one process. Any field may be None. Addresses are "0x..."
strings, times are ns since the run started, sizes are bytes. Keys may be added, never renamed or re-typed within a
version; enumerations (plain strings here) may grow. `#:` comments are the meanings of keys in the JSON Schema and in
docs/reference/report-schema.md, which `scripts/gen_schema.py` generates.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

from pytracer.report.evidence import Evidence as Evidence
from pytracer.report.evidence import Fact as Fact
from pytracer.report.evidence import FactKind as FactKind
from pytracer.report.history import Seen as Seen
from pytracer.report.process import AlsoCrashed as AlsoCrashed
from pytracer.report.process import Bucket as Bucket
from pytracer.report.process import CudaGraph as CudaGraph
from pytracer.report.process import CudaGraphUse as CudaGraphUse
from pytracer.report.process import CudaStream as CudaStream
from pytracer.report.process import DataLoaderWorker as DataLoaderWorker
from pytracer.report.process import Doing as Doing
from pytracer.report.process import Fault as Fault
from pytracer.report.process import Fsdp as Fsdp
from pytracer.report.process import GpuAccess as GpuAccess
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
from pytracer.report.process import MemorySpan as MemorySpan
from pytracer.report.process import NamedTensor as NamedTensor
from pytracer.report.process import NativeFrame as NativeFrame
from pytracer.report.process import Neighbor as Neighbor
from pytracer.report.process import Neighborhood as Neighborhood
from pytracer.report.process import Operand as Operand
from pytracer.report.process import Operator as Operator
from pytracer.report.process import OperatorTensor as OperatorTensor
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
from pytracer.report.timeline import CollectiveSpan as CollectiveSpan
from pytracer.report.timeline import StepMark as StepMark
from pytracer.report.timeline import Timeline as Timeline
from pytracer.report.timeline import Wait as Wait

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
    "disk-full",
    "heap-corruption",
    "abort",
    "illegal-instruction",
    "arithmetic",
    "trap",
    "forbidden-system-call",
    "read-only-write",
    "misaligned-access",
    "hardware-error",
    "oom-kill",
    "external-kill",
    "timer",
    "resource-limit",
    "python-exception",
    "exit",
    "collective-mismatch",
    "missing-rank",
    "hang",
    "cuda-error",
    "misuse",
    "clean",
    "recovered",
    "unknown",
]

PassedValue = int | str | list[int] | None  # what a rank passed: a root, an operation, a dtype, sizes
SCHEMA = "pytracer-report"
VERSION = 1


class Digests(Part, frozen=True):
    """What a report rests on that was made from digests of the nodes (docs/guide/digests.md)."""

    count: int | None = None  #: digests that were used
    missing_ranks: list[int] | None = None  #: ranks of the job that no digest has
    unread: list[str] | None = None  #: recordings of suspects that were not read, as HOST:PATH; they would decide
    running: list[str] | None = None  #: hosts on which ranks of the job still ran when their digest was written
    as_of: str | None = None  #: when the last digest of these was written, by its host's clock, ISO 8601, UTC


class Run(Part, frozen=True):
    """The run as a whole."""

    id: str | None = None
    directory: str | None = None  #: the first one, of a job that was recorded into several
    directories: list[str] | None = None  #: all of them; null for one
    started: str | None = None  #: wall-clock time, ISO 8601, UTC
    launcher: str | None = None  #: "torchrun", "srun", "mpirun", "mp.spawn" or "kubernetes"; null when unknown
    command: list[str] | None = None
    world_size: int | None = None
    hosts: list[str] | None = None
    torch: str | None = None
    cuda: str | None = None
    python: str | None = None
    redacted: int | None = None  #: secrets in `command` that were replaced before it was written
    digests: Digests | None = None  #: null for a report from recordings
    #: installed packages whose files count as the program's own: it was started from them, or they were named
    program_packages: list[str] | None = None


class CodeLine(Part, frozen=True):
    """A line of the program; `text` is its statement on one line, of a loop or branch without the body."""

    file: str | None = None
    line: int | None = None
    function: str | None = None  #: `Class.method`; null at the top of a file
    text: str | None = None


class Verdict(Part, frozen=True, rename={"class_": "class"}):
    """The headline. docs/reference/report.md lists the classes."""

    class_: str | None = None  #: enumeration; may grow
    confidence: str | None = None  #: "certain", "likely", "possible" or "unknown"
    rank: int | None = None
    pid: int | None = None
    summary: str | None = None
    advice: str | None = None
    evidence: list[str] | None = None  #: sentences
    facts: list[Fact] | None = None  #: what each sentence of `evidence` is about, in its order
    quotes_exception: bool | None = None  #: `summary` has type and message of the exception that ended the process
    finding: int | None = None  #: position in `findings` of the one it repeats; null when it repeats none
    attempt: int | None = None  #: the attempt it is about; null without restarts
    #: lines of the program that the verdict names, or that made the values at fault; the failing one is the last
    code: list[CodeLine] | None = None


class Finding(Part, frozen=True):
    """What one rule concluded."""

    id: str | None = None  #: of the rule (docs/reference/rules.md)
    confidence: str | None = None  #: "certain", "likely" or "possible"
    ranks: list[int] | None = None
    summary: str | None = None
    evidence: list[str] | None = None  #: sentences
    facts: list[Fact] | None = None  #: as in `Verdict`
    quotes_exception: bool | None = None  #: as in `Verdict`
    missing: list[str] | None = None  #: what would be needed for more confidence
    advice: str | None = None
    #: whether it is another explanation of the fault that the verdict explains, and no event of its own
    same_fault: bool | None = None


class Checked(Part, frozen=True):
    """A rule that did not fire."""

    id: str | None = None
    result: str | None = None  #: "not-found" or "cannot-decide"
    why: str | None = None


class Status(Part, frozen=True):
    """How a process ended."""

    #: "exited", "signaled", "exception", "running" (when it was read, or when the job had ended) or "vanished"
    kind: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    reported_by: str | None = None  #: "handler", "launcher" or "black-box"


class Signal(Part, frozen=True):
    """The signal that ended a process."""

    number: int | None = None
    name: str | None = None
    code: str | None = None  #: e.g. "SEGV_MAPERR"
    sender_pid: int | None = None  #: known for kill()
    sender_command: list[str] | None = None  #: command line of the sender


class HandledExceptionReport(Part, frozen=True):
    """An exception that the program had caught, and was handling."""

    type: str | None = None
    message: str | None = None
    python_stack: list[PythonFrame] | None = None
    variables: list[VariableReport] | None = None  #: of the program's innermost frame, where it is the first of a chain
    columns: list[int] | None = None  #: line, column, last line and end, in bytes, of the expression that failed
    near: list[NearNamesReport] | None = None  #: what there was in place of a missing key, attribute or parameter
    outer: list[OuterFrameReport] | None = None  #: variables of the frames around it


class ThreadExceptionReport(Part, frozen=True):
    """An exception that ended a thread, not the process."""

    type: str | None = None
    message: str | None = None
    python_stack: list[PythonFrame] | None = None
    thread: str | None = None  #: name in `threading`
    tid: int | None = None
    time: int | None = None  #: ns since the run started


class ExitRequestReport(Part, frozen=True):
    """Where the main thread asked for the end of the process: sys.exit(), exit() or `raise SystemExit`."""

    status: int | None = None
    message: str | None = None  #: the text that it was given in place of a status
    python_stack: list[PythonFrame] | None = None
    context: list[HandledExceptionReport] | None = None  #: what the program was handling, newest first


class VariableReport(Part, frozen=True):
    """A local variable of the frame that an exception left: its type, shape, length or number."""

    name: str | None = None
    value: str | None = None  #: e.g. "[2, 3] float32", "list of 4", "None", "7"


class OuterFrameReport(Part, frozen=True):
    """The variables of another frame of an exception's stack."""

    frame: int | None = None  #: its place in the stack, innermost first
    variables: list[VariableReport] | None = None


class NearNamesReport(Part, frozen=True):
    """Names that there were where one was missed: a dict's keys, an object's attributes, a call's parameters."""

    of: str | None = None  #: e.g. "checkpoint", "Encoder", "AdamW.__init__()"
    names: list[str] | None = None  #: those like the missing one first; keys as Python writes them
    count: int | None = None  #: of all keys


class WarningReport(Part, frozen=True):
    """What Python had warned of before an exception, once for each text and line."""

    category: str | None = None  #: its class, e.g. "RuntimeWarning"
    message: str | None = None
    file: str | None = None
    line: int | None = None


class ExceptionReport(Part, frozen=True):
    """An uncaught exception."""

    type: str | None = None
    message: str | None = None  #: of a C++ exception: what()
    python_stack: list[PythonFrame] | None = None
    language: str | None = None  #: "Python" or "C++"
    context: list[HandledExceptionReport] | None = None  #: what was being handled when it was raised, newest first
    remote_traceback: str | None = None  #: of the pool's process that raised it first, as text
    variables: list[VariableReport] | None = None  #: of the innermost frame of the program
    columns: list[int] | None = None  #: of the expression that failed there: line, column, last line, end; in bytes
    near: list[NearNamesReport] | None = None  #: what there was in place of a missing key, attribute or parameter
    outer: list[OuterFrameReport] | None = None  #: the program's frames around it; of torch's frame what it compared
    outermost: list[PythonFrame] | None = None  #: of a stack that is deeper than `python_stack`: its other end
    frame_count: int | None = None  #: how deep that is
    #: what the program's modules, then torch's, had warned of before, each in its order; not of versions to come
    warnings: list[WarningReport] | None = None


class AutogradNode(Part, frozen=True):
    """The autograd node that was running."""

    name: str | None = None
    sequence_nr: int | None = None
    thread: str | None = None


class LastOp(Part, frozen=True):
    """The last recorded operator."""

    name: str | None = None
    phase: str | None = None


class CurrentStream(Part, frozen=True):
    """The current CUDA stream when the crashed thread, or else any thread, made its last record."""

    device: str | None = None
    stream: str | None = None
    record: str | None = None  #: e.g. "NODE AddmmBackward0"
    thread: str | None = None
    crashed_thread: bool | None = None  #: `thread` is the one that crashed


class CollectiveBuffer(Part, frozen=True):
    """The first input of a collective, or its first output."""

    addr: str | None = None
    names: list[str] | None = None  #: all that are known, the best first
    bucket_index: int | None = None
    #: a DDP bucket, a communication hook's tensor, an FSDP buffer, a named storage, or the allocation site
    what: str | None = None


class LastCollective(Part, frozen=True):
    """A collective or point-to-point operation of a process."""

    group: str | None = None
    op: str | None = None
    sequence_nr: int | None = None  #: in the group, from 1; of sends and receives, with that peer and direction
    #: "scheduled", "started", "completed", "failed", "queued" (on a device; may have completed since the last poll), or
    #: "not received": a send that gloo completed, and that its receiver never had; "receive begun": one that its
    #: receiver had begun to receive, without a wait() that would have completed that: whether it has it is not known
    state: str | None = None
    sizes: list[int] | None = None
    dtypes: list[str] | None = None
    root: int | None = None  #: rank in the group
    reduce_op: str | None = None
    buffer: CollectiveBuffer | None = None
    output: CollectiveBuffer | None = None  #: null when it is the input
    peer: int | None = None  #: rank in the group
    tag: int | None = None
    python: PythonFrame | None = None  #: line of the call, outside torch where known
    waited_ns: int | None = None  #: from the call to its end, or to the end of the process
    stream: str | None = None  #: current CUDA stream of the call
    cuda_graph: int | None = None  #: the CUDA graph it was captured into


class DdpBucket(Part, frozen=True):
    """One bucket of a DDP module, as last recorded."""

    index: int | None = None
    addr: str | None = None
    nbytes: int | None = None
    generation: int | None = None  #: number of the layout
    parameters: list[str] | None = None


class Ddp(Part, frozen=True):
    """One DDP module, as last recorded."""

    module: str | None = None
    buckets: list[DdpBucket] | None = None
    has_rebuilt: bool | None = None
    hook: str | None = None  #: name of the communication hook
    ready: list[str] | None = None


class FsdpParameter(Part, frozen=True):
    """A parameter of an FSDP unit."""

    fqn: str | None = None
    numel: int | None = None  #: of the whole parameter
    shard_numel: int | None = None  #: of this rank's shard, padding included (FSDP2)
    shard_addr: str | None = None


class FsdpUnit(Part, frozen=True):
    """One FSDP unit, as last recorded."""

    module: str | None = None
    unit: str | None = None
    wrapper: str | None = None  #: "fully_shard" or "FullyShardedDataParallel"
    state: str | None = None  #: "sharded" or "unsharded"
    world_size: int | None = None
    shard_rank: int | None = None
    replicas: int | None = None  #: above 1 with hybrid sharding (HSDP)
    shard_addr: str | None = None  #: of the flat parameter's shard (FSDP1)
    parameters: list[FsdpParameter] | None = None


class Memory(Part, frozen=True):
    """Memory of the process at its end."""

    rss: int | None = None
    max_rss: int | None = None  #: maximum, of the process or of a child that it reaped
    cpu_storages_bytes: int | None = None
    cuda_allocated_bytes: int | None = None


class Usage(Part, frozen=True):
    """CPU time and page faults from disk, of the process and the children that it reaped."""

    user_seconds: float | None = None
    system_seconds: float | None = None
    major_faults: int | None = None


class ProcessReport(Part, frozen=True):
    """One process."""

    pid: int | None = None
    ppid: int | None = None
    host: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    role: str | None = None  #: "rank", "dataloader-worker", "child", "launcher" or "process"
    #: what it is to its framework: "Ray actor Trainer", "pytest-xdist worker gw1", "Jupyter kernel"
    name: str | None = None
    #: the source of `name`: "Python stack", "recorded" by the process itself, "thread name" or "command line"
    name_found: str | None = None
    doing: Doing | None = None
    command: list[str] | None = None
    started: int | None = None
    ended: int | None = None
    raised: int | None = None  #: when the exception that ended it was raised: which death came first goes by that
    status: Status | None = None
    primary: bool | None = None  #: true: its death is the cause; false: a consequence; null: undecided, or nothing died
    why: str | None = None  #: the reason for `primary` (docs/guide/who-died-first.md)
    #: the kind of reason: "first", "absent", "alike", "undecided", "reported", "sent", "network", "teardown",
    #: "cleanup", "limit" or "finding"
    why_kind: str | None = None
    signal: Signal | None = None
    fault: Fault | None = None
    neighborhood: Neighborhood | None = None  #: of the fault address, or of memory that a CUDA graph lost
    timeline: Timeline | None = None  #: of a process that recorded steps or collectives
    thread: Thread | None = None  #: the crashed thread
    python_stack: list[PythonFrame] | None = None  #: of the crashed thread, innermost first
    native_stack: list[NativeFrame] | None = None  #: of the crashed thread, innermost first
    threads: list[ThreadReport] | None = None
    registers: dict[str, str] | None = None
    exception: ExceptionReport | None = None
    thread_exceptions: list[ThreadExceptionReport] | None = None  #: oldest first
    exit_request: ExitRequestReport | None = None  #: with the status that the process ended with
    handled_exception: HandledExceptionReport | None = None  #: by the crashed thread or the main one, at its end
    step: int | None = None
    autograd_node: AutogradNode | None = None
    last_op: LastOp | None = None
    operator: Operator | None = None  #: that the crashed thread was running, with its tensors
    current_stream: CurrentStream | None = None
    last_collective: LastCollective | None = None
    recent_collectives: list[LastCollective] | None = None  #: the last one of each operation, newest first
    ddp: list[Ddp] | None = None
    fsdp: list[FsdpUnit] | None = None
    cuda_graphs: list[CudaGraph] | None = None
    cuda_streams: list[CudaStream] | None = None
    memory: Memory | None = None
    usage: Usage | None = None
    environment: dict[str, str] | None = None  #: fixed list of variables (docs/guide/secrets.md)
    notes: list[str] | None = None  #: what the recorder could not do, e.g. install a hook
    abort_text: str | None = None  #: what the C library printed before abort(): a failed assertion, heap damage
    #: how other threads' stacks were taken: "helper (ptrace)" or "signal"; null: they were not
    threads_found: str | None = None
    threads_total: int | None = None  #: threads beside the crashed one, including those not listed
    stack_cycle: StackCycle | None = None  #: recursion on a deep stack
    also_crashed: list[AlsoCrashed] | None = None  #: threads that crashed while this crash was recorded
    #: at most 16 words of the stack, and registers, that point at something known
    pointers: list[Pointer] | None = None
    memory_blocks: list[MemoryBlock] | None = None
    images: list[Image] | None = None
    mappings: list[MemoryRange] | None = None
    #: the thread that opened the OpenMP parallel region in which another thread of it crashed
    parallel_region_opener: Thread | None = None
    parent_rank: int | None = None  #: of a process that is no rank: the rank that started it, or its parent's
    attempt: int | None = None  #: restart by torchrun, or job of a sequence, from 0; null without either
    worker: DataLoaderWorker | None = None  #: of a DataLoader worker
    guard: GuardReport | None = None
    gpu_core: GpuCoreReport | None = None
    redacted: int | None = None  #: secrets in command lines and variables that were replaced before they were written


class MismatchVariant(Part, frozen=True):
    """Ranks that made the same call."""

    ranks: list[int] | None = None
    call: str | None = None  #: e.g. "broadcast float32 [10, 3] from rank 0"
    state: str | None = None
    python: PythonFrame | None = None


class Mismatch(Part, frozen=True):
    """A collective on which ranks disagree."""

    sequence_nr: int | None = None
    field: str | None = None  #: "op", "root", "reduce_op", "dtype", "size" or "shape"
    by_rank: dict[str, PassedValue] | None = None  #: each rank's value of `field`
    variants: list[MismatchVariant] | None = None  #: the largest first
    odd_ranks: list[int] | None = None  #: ranks outvoted by the majority; null when there is none
    silent: bool | None = None  #: the operation reported success on every rank


class Group(Part, frozen=True):
    """A process group."""

    name: str | None = None
    description: str | None = None
    backend: str | None = None
    ranks: list[int] | None = None
    last: dict[str, int | None] | None = None  #: by rank, sequence number of its last collective; null when unknown
    mismatch: Mismatch | None = None
    missing_ranks: list[int] | None = None  #: ranks that did not call the first collective that others wait in
    missing_sequence_nr: int | None = None  #: number of that collective
    unknown_ranks: list[int] | None = None  #: ranks without a readable record: neither late nor absent


class Collectives(Part, frozen=True):
    """Collectives across ranks."""

    groups: list[Group] | None = None
    waits: list[Wait] | None = None  #: which ranks wait for which, at the end; at most 64
    cycles: list[list[int]] | None = None  #: ranks that wait for each other, in order of waiting


class DamageReport(Part, frozen=True):
    """Something that could not be read."""

    file: str | None = None
    offset: int | None = None
    what: str | None = None


class Attempt(Part, frozen=True):
    """Another attempt of torchrun, or an earlier job of a sequence, judged alone."""

    attempt: int | None = None
    verdict: Verdict | None = None


class FlightRecorderDump(Part, frozen=True):
    """A dump of torch's Flight Recorder."""

    file: str | None = None
    rank: int | None = None
    pid: int | None = None  #: the process it was added to; null when it was not used
    entries: int | None = None
    known: int | None = None  #: entries that the recording has, too
    added: int | None = None  #: entries that the recording lacks
    last: dict[str, int] | None = None  #: by group, the highest sequence number
    notes: list[str] | None = None  #: e.g. why it was not used


class Alternative(Part, frozen=True):
    """Another explanation than the verdict's, and what speaks against it."""

    id: str | None = None  #: of a rule; else of a popular suspect: "clone", "barrier", "torch-compile" or "version"
    says: str | None = None  #: the explanation
    result: str | None = None  #: "also-found": a finding that is not the verdict; "refuted" or "cannot-decide"
    why: str | None = None  #: the fact that refutes it, or that is missing
    close: bool | None = (
        None  #: whether it explains deaths of this kind, or could not be decided; `--explain` shows these
    )


class SourceSnippet(Part, frozen=True):
    """Lines of source around a frame."""

    file: str | None = None
    line: int | None = None  #: the frame's
    first_line: int | None = None  #: number of the first of `lines`
    lines: list[str] | None = None


class Report(Part, frozen=True):
    """The whole report, version 1. `print()` shows it as text, a notebook as a page."""

    schema: str = SCHEMA
    version: int = VERSION
    run: Run | None = None
    verdict: Verdict | None = None
    findings: list[Finding] | None = None  #: every rule that fired, strongest first
    checked: list[Checked] | None = None  #: every rule that did not fire
    #: other explanations than the verdict's, the most plausible first; empty if nothing died
    alternatives: list[Alternative] | None = None
    processes: list[ProcessReport] | None = None
    collectives: Collectives | None = None
    damage: list[DamageReport] | None = None
    counts: dict[str, int] | None = None
    attempts: list[Attempt] | None = None  #: all but the one that the verdict is about
    flight_recorder: list[FlightRecorderDump] | None = None  #: dumps that were given or found
    #: `--redact`: different values that were replaced, by kind: "secrets", "credentials" (in URLs), "hosts", "users",
    #: "paths" (directories) and "memory_blocks"; null when nothing was to be
    removed: dict[str, int] | None = None
    seen: Seen | None = None  #: `inspect --history`: earlier deaths of this cause; null when it was not asked for
    sources: list[SourceSnippet] | None = None  #: `pack --sources`: lines around the frames, where they could be read

    def __repr__(self) -> str:
        """One line: class, confidence and headline. `print()` shows the text report."""
        return self._view("repr_words")

    def __str__(self) -> str:
        return self._view("text")

    def _repr_html_(self) -> str:
        """The page of `pytracer inspect --html`, in a frame of its own, for notebooks."""
        return self._view("frame")

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The text report, for IPython."""
        printer.text(self._view("text"))

    def _view(self, name: str) -> str:
        """What `pytracer.render.representation` makes of it. Python asks the object for its views, which this package,
        the lowest, does not know: hence not by an import statement.
        """
        views = import_module("pytracer.render.representation")
        return str(getattr(views, name)(self))
