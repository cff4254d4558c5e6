"""What a finding rests on: facts, each of a kind, with data; and the sentence about it.

A rule makes `Evidence`. The report has its sentence in `evidence` and the rest, a `Fact`, at the same place of `facts`,
so that neither a program nor a view of the report searches a sentence.
"""

from __future__ import annotations

from typing import Literal

from pytracer.report.process import Part, PythonFrame

FactKind = Literal[
    # Signals and instructions
    "signal",  #: the signal that ended the process, or a later one
    "access",  #: a refused memory access, and its signal
    "jump",  #: the target of a call or return that no code lies at
    "instruction",  #: the bytes or the text of the instruction
    "register-value",  #: the value of a register, or of a word in memory
    "thread-state",  #: what another thread did, or what this one lacks
    "sender",  #: a process that noted that it sent the signal, and its line
    "sender-command",  #: the command line of the process that sent the signal
    # Code
    "python-line",  #: the Python line that was executing
    "source-line",  #: the text of a line
    "native-stack",  #: frames of the native stack
    "recursion",  #: frames that repeat
    "stack-bounds",  #: the address, the stack pointer and the thread's stack
    "exception",  #: the exception that reached the top of the program
    "variables",  #: what variables were when an exception left their frame, or two ranks were asked to end
    "warning",  #: what Python had warned of at a line of the program, before the exception
    "thread-exception",  #: an exception that ended a thread, not the process
    "printed",  #: what the C library printed before abort(), or the CUDA driver of an assertion in a kernel
    # Memory
    "storage",  #: the storage of the address, or beside it
    "storage-lifetime",  #: earlier owners of the same memory
    "allocation",  #: where, when and by whom a storage was allocated
    "free",  #: where, when and by whom it was freed
    "release",  #: why memory was released, or what holds a tensor now
    "ddp-bucket",  #: the DDP bucket of a storage
    "fsdp-unit",  #: the FSDP unit of a storage
    "tensor",  #: a tensor or array that the function was given
    "index",  #: a value that an address was computed from
    "address-sum",  #: address = storage + scale * index
    "address-bits",  #: the bits of an address: no canonical address, one bit beside a known one
    "overrun",  #: an access that ran on from a storage without a gap
    "neighbor",  #: what lies beside the storage
    "guard",  #: what guard mode saw
    "alignment",  #: how an address is aligned
    "mapping",  #: the memory map at an address
    "mapped-file",  #: size of a mapped file, and of the part that is mapped
    "file-system",  #: room on the file system of a file
    "port",  #: who had the TCP port that a server was refused
    # Collectives and processes
    "collective-state",  #: a collective that was open, or that none was
    "collective-call",  #: what ranks called
    "call-site",  #: a line, and how often ranks called a collective from it
    "process-group",  #: a process group, its ranks and backend
    "data-loader",  #: a DataLoader and its sampler
    "rank-state",  #: what a rank did meanwhile
    "lost-status",  #: a child whose exit status nobody can get
    "death",  #: the death of a process, in the order of deaths
    "exit-status",  #: how a process ended
    # The machine
    "kernel-log",  #: a line of the kernel's log, or that it has none
    "limit",  #: a limit of the process (getrlimit), and how much of it was used
    "memory-limit",  #: OOM kills, limit and use of a memory cgroup
    "oom-count",  #: OOM kills of the whole machine
    "memory-pressure",  #: time that processes waited for memory
    "memory-use",  #: memory of the process or the machine
    "agent",  #: torchrun's agent, which may have sent a signal
    "scheduler",  #: a scheduler that may have sent it
    "memory-killer",  #: a program that may have sent it
    # CUDA
    "device-memory",  #: memory of a device
    "cuda-stream",  #: work on a stream, or its failure
    "cuda-graph",  #: a CUDA graph and its inputs
    "cuda-launch",  #: how far a line of Python and a kernel are apart
    "xid",  #: the driver's message about an error of a device
    "gpu-core",  #: contents of the device's core dump
    # Circumstances
    "library",  #: a loaded library
    "environment",  #: an environment variable
    "known-crash",  #: a known crash whose facts all hold
]


class Fact(Part, frozen=True, kw_only=True, omit_defaults=True):
    """What a piece of evidence is about, for programs; keys that do not apply are left out."""

    kind: str  #: one of the kinds below; may grow
    rank: int | None = None
    ranks: list[int] | None = None
    pid: int | None = None
    host: str | None = None
    tid: int | None = None  #: of a thread
    thread: str | None = None  #: name of a thread
    step: int | None = None  #: training step
    time: int | None = None  #: ns since the run started
    duration_ns: int | None = None
    signal: str | None = None  #: e.g. "SIGSEGV"
    code: str | None = None  #: e.g. "SEGV_MAPERR"
    exit_code: int | None = None
    access: str | None = None  #: "read", "write" or "execute"
    addr: str | None = None  #: the address that was used; of a mapping or stack, where it begins
    nbytes: int | None = None  #: size of the access, storage, file or stack
    instruction: str | None = None
    register: str | None = None
    value: int | None = None  #: of the register, word, index or divisor; number of an error
    base: str | None = None  #: first address of the storage
    #: of the address from `base`, or in a file; of an overrun, how far it ran; of the stack pointer from `addr`
    offset_bytes: int | None = None
    scale: int | None = None  #: bytes of an element
    tensor: str | None = None  #: name of a tensor, parameter or gradient
    tensors: list[str] | None = None
    module: str | None = None
    bucket: int | None = None  #: index of the DDP bucket
    generation: int | None = None  #: of its layout
    python: PythonFrame | None = None
    frames: list[str] | None = None  #: innermost first
    function: str | None = None  #: native function
    autograd_node: str | None = None
    path: str | None = None  #: of a file or library
    permissions: str | None = None  #: of a mapping, as in /proc/PID/maps
    group: str | None = None  #: process group
    op: str | None = None  #: collective or operator
    sequence_nr: int | None = None  #: of the collective in its group
    state: str | None = None  #: e.g. of the collective or the storage
    call: str | None = None  #: as in `MismatchVariant`
    count: int | None = None
    counts: list[int] | None = None  #: of each of `ranks`
    limit: int | None = None  #: what `value`, `count` or `nbytes` may reach
    device: str | None = None
    stream: str | None = None
    cuda_graph: int | None = None
    xid: int | None = None
    variable: str | None = None  #: of the environment
    command: list[str] | None = None
    text: str | None = None  #: quoted: a message, a line of a log or of source
    id: str | None = None  #: of a known crash (docs/reference/known-crashes.md)
    name: str | None = None  #: of a program, scheduler or sampler
    exception: str | None = None  #: type of an exception
    build_id: str | None = None  #: of a library
    result: str | None = None  #: of a search: "found", "not found" or "not readable"


class Evidence(Fact, frozen=True, kw_only=False):
    """One fact that a finding rests on, and its sentence: `Evidence("free", "freed at ...", addr="0x7f...")`."""

    kind: FactKind
    sentence: str

    @property
    def fact(self) -> Fact:
        """The same without the sentence."""
        return Fact(**{name: getattr(self, name) for name in Fact.__struct_fields__})
