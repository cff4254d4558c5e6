"""The report: what `pytracer inspect` found out, as plain data.

This is the product; text and JSON are views of it, `docs/report.md` is its description. It imports nothing of ours.
Any field may be None. Addresses are "0x..." strings, times are ns since the run started, sizes are bytes. Keys may
be added, never renamed or re-typed within a version; enumerations (plain strings here) may grow.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

SCHEMA = "pytracer-report"
VERSION = 1

Evidence: TypeAlias = str
"""One fact that a finding rests on, as a sentence."""


class _Part(msgspec.Struct, kw_only=True):
    """Base of every part of the report: all fields are keywords and may be None."""


class Run(_Part):
    """The run as a whole. `started` is wall-clock time in ISO 8601, UTC."""

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


class Verdict(_Part, rename={"class_": "class"}):
    """The one headline. `class` is one of the classes in docs/report.md."""

    class_: str | None = None
    confidence: str | None = None
    rank: int | None = None
    pid: int | None = None
    summary: str | None = None
    advice: str | None = None
    evidence: list[Evidence] | None = None


class Finding(_Part):
    """What one rule concluded."""

    id: str | None = None
    confidence: str | None = None
    ranks: list[int] | None = None
    summary: str | None = None
    evidence: list[Evidence] | None = None
    missing: list[str] | None = None
    advice: str | None = None


class Checked(_Part):
    """A rule that did not fire. `result` is "not-found" or "cannot-decide"."""

    id: str | None = None
    result: str | None = None
    why: str | None = None


class Status(_Part):
    """How a process ended: "exited", "signaled", "exception", "running" or "vanished", and who says so."""

    kind: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    reported_by: str | None = None


class Signal(_Part):
    """The signal that ended a process. `code` is e.g. "SEGV_MAPERR"; the sender is known for kill()."""

    number: int | None = None
    name: str | None = None
    code: str | None = None
    sender_pid: int | None = None


class PythonFrame(_Part):
    """A place in Python code."""

    function: str | None = None
    file: str | None = None
    line: int | None = None


class NativeFrame(_Part):
    """A place in native code. `offset` is the ELF virtual address.

    `found` is "exact", "unwound", "frame-pointer" or "scanned".
    """

    image: str | None = None
    offset: str | None = None
    build_id: str | None = None
    function: str | None = None
    found: str | None = None


class Origin(_Part):
    """Who allocated or freed a storage. `caller` is the first Python frame outside torch, when it was recorded."""

    time: int | None = None
    thread: str | None = None
    step: int | None = None
    python: PythonFrame | None = None
    caller: PythonFrame | None = None
    autograd_node: str | None = None
    op: str | None = None


class StorageReport(_Part):
    """The storage at or nearest to the fault address. `distance_bytes` is how far outside of it, 0 inside.

    `earlier` names older storages at the same address, the latest first.
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


class Bucket(_Part):
    """The DDP bucket that lived in that storage; `parameter` is the one at the offset."""

    module: str | None = None
    index: int | None = None
    generation: int | None = None
    nbytes: int | None = None
    parameters: list[str] | None = None
    offset_bytes: int | None = None
    parameter: str | None = None


class CudaGraphUse(_Part):
    """How a CUDA graph used the memory at the fault address."""

    id: int | None = None
    pool: str | None = None
    captured_at: int | None = None
    replays: int | None = None
    role: str | None = None
    note: str | None = None


class MappingReport(_Part):
    """The mapping that the fault address lies in; `file_size` is the file's size when the report was made."""

    path: str | None = None
    start: str | None = None
    end: str | None = None
    permissions: str | None = None
    file_size: int | None = None


class Fault(_Part):
    """The access that failed. `kind` says what the address was; see docs/report.md."""

    addr: str | None = None
    access: str | None = None
    size: int | None = None
    kind: str | None = None
    storage: StorageReport | None = None
    bucket: Bucket | None = None
    fsdp: dict[str, Any] | None = None
    cuda_graph: CudaGraphUse | None = None
    mapping: MappingReport | None = None
    instruction: str | None = None


class Thread(_Part):
    """A thread: "main", "python", "autograd", "openmp", "gloo", "nccl-watchdog" or "native"."""

    tid: int | None = None
    name: str | None = None
    kind: str | None = None


class ThreadReport(_Part):
    """A thread with its stacks, innermost frame first."""

    tid: int | None = None
    name: str | None = None
    kind: str | None = None
    crashed: bool | None = None
    python_stack: list[PythonFrame] | None = None
    native_stack: list[NativeFrame] | None = None


class ExceptionReport(_Part):
    """An uncaught Python exception, or what() of a C++ one."""

    type: str | None = None
    message: str | None = None
    python_stack: list[PythonFrame] | None = None


class AutogradNode(_Part):
    """The autograd node that was running."""

    name: str | None = None
    sequence_nr: int | None = None
    thread: str | None = None


class LastOp(_Part):
    """The last operator that was recorded."""

    name: str | None = None
    phase: str | None = None


class CollectiveBuffer(_Part):
    """The first tensor of a collective."""

    addr: str | None = None
    names: list[str] | None = None
    bucket_index: int | None = None


class LastCollective(_Part):
    """The last collective of a process. `state` is "scheduled", "started", "completed" or "failed"."""

    group: str | None = None
    op: str | None = None
    sequence_nr: int | None = None
    state: str | None = None
    sizes: list[int] | None = None
    dtypes: list[str] | None = None
    root: int | None = None
    reduce_op: str | None = None
    buffer: CollectiveBuffer | None = None


class DdpBucket(_Part):
    """One bucket of a DDP module, as last seen."""

    index: int | None = None
    addr: str | None = None
    nbytes: int | None = None
    generation: int | None = None
    parameters: list[str] | None = None


class Ddp(_Part):
    """One DDP module, as last seen."""

    module: str | None = None
    buckets: list[DdpBucket] | None = None
    has_rebuilt: bool | None = None
    ready: list[str] | None = None


class Memory(_Part):
    """Memory of the process at its end."""

    rss: int | None = None
    cpu_storages_bytes: int | None = None
    cuda_allocated_bytes: int | None = None


class ProcessReport(_Part):
    """One process. `primary`: its death started it all (True), followed (False), or it is undecided (None).

    `why` explains `primary`; `notes` are what the recorder itself could not do.
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
    last_collective: LastCollective | None = None
    recent_collectives: list[LastCollective] | None = None  # the last one of each op, newest first
    ddp: list[Ddp] | None = None
    fsdp: list[dict[str, Any]] | None = None
    cuda_graphs: list[dict[str, Any]] | None = None
    cuda_streams: list[dict[str, Any]] | None = None
    memory: Memory | None = None
    environment: dict[str, str] | None = None
    notes: list[str] | None = None


class Mismatch(_Part):
    """A collective on which ranks disagree."""

    sequence_nr: int | None = None
    field: str | None = None
    by_rank: dict[str, Any] | None = None


class Group(_Part):
    """A process group. `last` maps each rank to the sequence number of its last collective."""

    name: str | None = None
    ranks: list[int] | None = None
    last: dict[str, int | None] | None = None
    mismatch: Mismatch | None = None
    missing_ranks: list[int] | None = None


class Collectives(_Part):
    """What is known about collectives across ranks."""

    groups: list[Group] | None = None


class DamageReport(_Part):
    """Something that could not be read."""

    file: str | None = None
    offset: int | None = None
    what: str | None = None


class Report(_Part):
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
