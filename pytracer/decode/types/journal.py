"""Journal entries, decoded: what a process recorded once and never overwrote.

The structs of JSON entries are also the shapes that their payloads are checked against. Keys that are not listed are
allowed, so that newer recordings stay readable; those with a default may be missing, as in older ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar, cast

import msgspec

from pytracer.blackbox.note_codes import NoteCode
from pytracer.decode.types.host_counters import Usage
from pytracer.decode.types.storages import PythonFrame


class CommandLine(msgspec.Struct, frozen=True):
    """PROCESS: the command line, as in /proc/self/cmdline."""

    argv: tuple[str, ...]


class Environment(msgspec.Struct, frozen=True):
    """ENVIRONMENT: the variables on the allow-list."""

    variables: dict[str, str]


class Note(msgspec.Struct, frozen=True):
    """NOTE, CORE_NOTE: what the recorder could not do. `subject`: which hook, which part of torch; see `NoteCode`.

    `addr` and `value`: the data of `CoreNote`.
    """

    text: str
    code: NoteCode = NoteCode.OTHER
    subject: str | None = None
    addr: int | None = None
    value: int | None = None


@dataclass(frozen=True)
class Wait:
    """A child's end as its parent saw it: exactly one of `exit_code` and `signal` is set."""

    pid: int
    exit_code: int | None
    signal: int | None
    mono_ns: int
    usage: Usage | None = None


class ChildStatus(msgspec.Struct, frozen=True):
    """WAIT: wait(2) or waitid(2) returned a child. `end` is None when it had only stopped or continued."""

    end: Wait | None


class Versions(msgspec.Struct, frozen=True):
    """VERSIONS."""

    python: str | None = None
    torch: str | None = None
    cuda: str | None = None
    pytracer: str | None = None


class Rank(msgspec.Struct, frozen=True):
    """RANK: the process became one, or with `left`, began to leave its job: the function that does so."""

    rank: int
    local_rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    left: str | None = None


class ModuleTensor(msgspec.Struct, frozen=True):
    """A parameter or buffer of a wrapped module."""

    fqn: str
    addr: int | None = None
    nbytes: int | None = None
    role: str | None = None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    storage_addr: int | None = None
    storage_nbytes: int | None = None


class Module(msgspec.Struct, frozen=True, rename={"class_": "class"}):
    """MODULE. `settings`: options of the wrapper that decide what it communicates; `caller`: what wrapped it."""

    module: str
    tensors: tuple[ModuleTensor, ...]
    class_: str | None = None
    wrapper: str | None = None
    settings: dict[str, bool | float] = {}
    caller: Caller | None = None


class BucketParameter(msgspec.Struct, frozen=True):
    """A parameter's place in a bucket."""

    fqn: str
    offset_bytes: int
    nbytes: int


class Bucket(msgspec.Struct, frozen=True):
    """A gradient bucket."""

    index: int
    addr: int
    nbytes: int
    parameters: tuple[BucketParameter, ...]


class Buckets(msgspec.Struct, frozen=True):
    """BUCKETS: the layout of a DDP module's buckets, the `generation`th from 0."""

    module: str
    generation: int
    buckets: tuple[Bucket, ...]
    has_rebuilt: bool | None = None


class UnitParameter(msgspec.Struct, frozen=True):
    """A parameter of an FSDP unit; sizes and `offset`, its place in the flat parameter, in elements; 0: unknown."""

    fqn: str
    numel: int = 0
    shard_numel: int = 0
    offset: int = 0
    addr: int = 0
    itemsize: int = 0


class Unit(msgspec.Struct, frozen=True):
    """UNIT: one FSDP unit. `fqn` is its name below the root, empty for the root itself; 0: unknown.

    `shard_numel` is the size of each rank's shard of all its parameters together, in elements.
    """

    module: str
    fqn: str
    wrapper: str
    flat: bool
    world_size: int
    shard_rank: int
    shard_numel: int
    shard_addr: int
    shard_itemsize: int
    replicas: int
    parameters: tuple[UnitParameter, ...]


class Hook(msgspec.Struct, frozen=True):
    """HOOK: a communication hook of a DDP module; None for a module whose name was not known yet."""

    hook: str
    module: str | None = None


class Variable(msgspec.Struct, frozen=True):
    """A local variable, and what it was: `[2, 3] float32`, `list of 4`, `None`, `7`."""

    name: str
    value: str


class OuterFrame(msgspec.Struct, frozen=True):
    """The variables of another frame of the stack. `frame`: its place there, innermost first."""

    frame: int
    variables: tuple[Variable, ...] = ()


class NearNames(msgspec.Struct, frozen=True):
    """The keys of a dict, or attributes or parameters; `count`: of all keys."""

    of: str
    names: tuple[str, ...] = ()
    count: int | None = None


class EarlierWarning(msgspec.Struct, frozen=True):
    """What a module had warned of before an exception."""

    message: str
    category: str | None = None
    file: str | None = None
    line: int | None = None


class HandledException(msgspec.Struct, frozen=True):
    """An exception that was being handled when another one was raised.

    `variables` and what follows: as of UncaughtException, of the first one of a chain that ran a line of the program.
    """

    type: str
    message: str | None = None
    python_stack: tuple[PythonFrame, ...] = ()
    variables: tuple[Variable, ...] = ()
    columns: tuple[int, ...] = ()
    near: tuple[NearNames, ...] = ()
    outer: tuple[OuterFrame, ...] = ()


class UncaughtException(msgspec.Struct, frozen=True):
    """EXCEPTION. `on_its_way`: what ran while it had not reached the top; it may have been caught later.

    `context`: what was being handled when it was raised, newest first.
    `remote_traceback`: of a pool's process, which sent the exception to this one.
    `variables`: of the innermost frame of the program; `columns`: the expression that failed there, as line,
    column, last line and end. `near`: names that there were in place of a missing one. `outer`: variables of the
    program's frames around it, and what a function of torch's compared. `device_events`: how many events the CUDA
    devices' allocators had had; 0: none, or the program goes on after exceptions. `outermost`: the other end of a stack
    that is deeper than `python_stack`, innermost first; `frame_count`: how deep it was. `warnings`: of before.
    """

    type: str
    message: str | None = None
    thread: str | None = None
    python_stack: tuple[PythonFrame, ...] = ()
    on_its_way: str | None = None
    context: tuple[HandledException, ...] = ()
    remote_traceback: str | None = None
    variables: tuple[Variable, ...] = ()
    columns: tuple[int, ...] = ()
    near: tuple[NearNames, ...] = ()
    outer: tuple[OuterFrame, ...] = ()
    device_events: int = 0
    outermost: tuple[PythonFrame, ...] = ()
    frame_count: int = 0
    warnings: tuple[EarlierWarning, ...] = ()


class ThreadException(msgspec.Struct, frozen=True):
    """THREAD_EXCEPTION: an exception that ended a thread of `threading`, not the process."""

    type: str
    tid: int
    message: str | None = None
    thread: str | None = None
    python_stack: tuple[PythonFrame, ...] = ()
    context: tuple[HandledException, ...] = ()


class ExitRequest(msgspec.Struct, frozen=True):
    """EXIT_REQUEST: the main thread asked for the end of the process by SystemExit, which may have been caught.

    `message`: of a text. `context`: what the program was handling, newest first.
    """

    status: int
    message: str | None = None
    python_stack: tuple[PythonFrame, ...] = ()
    context: tuple[HandledException, ...] = ()


class DeviceAssertion(msgspec.Struct, frozen=True):
    """DEVICE_ASSERTION: what the CUDA driver printed of an assertion that failed in a kernel."""

    text: str


class CppException(msgspec.Struct, frozen=True):
    """CPP_EXCEPTION: std::terminate() was called on thread `tid`. `type` is empty when no exception was active."""

    tid: int
    type: str
    what: str


class Caller(msgspec.Struct, frozen=True):
    """The line of the program that called torch, where Python recorded it itself."""

    function: str
    file: str
    line: int | None = None


class Rendezvous(msgspec.Struct, frozen=True):
    """RENDEZVOUS: init_process_group() was called. `passed`: what was given by arguments, not by the environment."""

    rank: int | None = None
    world_size: int | None = None
    local_rank: int | None = None
    master_addr: str | None = None
    master_port: int | None = None
    file: str | None = None
    passed: tuple[str, ...] = ()
    caller: Caller | None = None


class Members(tuple[int, ...]):
    """The ranks of a process group, in its order: thousands, asked for as a key by each of these ranks."""

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def ascending(self) -> tuple[int, ...]:
        """The same in ascending order."""
        return Members(sorted(self))


class MadeGroup(msgspec.Struct, frozen=True):
    """GROUP. Without a name: this process took part in making the group and is no member of it, or has only `begun`."""

    name: str | None = None
    ranks: tuple[int, ...] | None = None
    description: str | None = None
    backend: str | None = None
    index: int | None = None
    begun: bool | None = None
    caller: Caller | None = None


class SeenGroup(msgspec.Struct, frozen=True):
    """GROUP_SEEN: a process group that ran a collective."""

    name: str
    description: str
    size: int
    rank: int
    backend: str


class SeenSignal(msgspec.Struct, frozen=True):
    """SIGNAL_SEEN: a termination signal. `sender_pid` is 0 for the kernel and other pid namespaces."""

    signal: int
    code: int
    sender_pid: int
    sender_uid: int
    tid: int
    handled: bool
    sender_command: tuple[str, ...]


class LoaderWorker(msgspec.Struct, frozen=True):
    """WORKER: the process is a worker of a DataLoader."""

    worker_id: int | None = None
    num_workers: int | None = None
    seed: int | None = None
    dataset: str | None = None


class Loader(msgspec.Struct, frozen=True):
    """LOADER: a DataLoader was created. `plain`: its sampler is one of torch's that do not know ranks.

    `batches`: of an epoch, as its batch sampler counts them; of torch's samplers only. `at`: the program's line.
    """

    dataset: str | None = None
    iterable: bool | None = None
    sampler: str | None = None
    distributed: bool | None = None
    plain: bool | None = None
    initialized: bool | None = None
    samples: int | None = None
    batch_size: int | None = None
    drop_last: bool | None = None
    batches: int | None = None
    at: PythonFrame | None = None


class Doing(msgspec.Struct, frozen=True):
    """DOING: what the process does from then on; of kind "name" what the process is. `file`, `source`: of a cell.

    Of kind "async_save": where torch's async_save() was called.
    """

    kind: str
    text: str
    file: str | None = None
    source: str | None = None
    function: str | None = None
    line: int | None = None


class GraphReplay(msgspec.Struct, frozen=True):
    """GRAPH_REPLAY: a line of the program that replays a CUDA graph after memory that it uses was freed."""

    graph: int
    file: str
    line: int
    function: str | None = None


class Uninterpreted(msgspec.Struct, frozen=True):
    """An entry of a kind that this version does not know, or that is decoded with devices or with guard mode."""

    payload: bytes


Payload = (
    CommandLine
    | Environment
    | Note
    | ChildStatus
    | Versions
    | Rank
    | Module
    | Buckets
    | Unit
    | Hook
    | GraphReplay
    | UncaughtException
    | ThreadException
    | ExitRequest
    | CppException
    | DeviceAssertion
    | Rendezvous
    | MadeGroup
    | SeenGroup
    | SeenSignal
    | LoaderWorker
    | Loader
    | Doing
    | Uninterpreted
)
P = TypeVar("P", bound=Payload)
P_co = TypeVar("P_co", bound=Payload, covariant=True)


@dataclass(frozen=True)
class Fact(Generic[P_co]):
    """One journal entry but CODE, NODE and SITE, which are in `CallSite`. `kind` is the name of `schema.Entry`."""

    mono_ns: int
    epoch: int
    kind: str
    data: P_co


AnyFact = Fact[Payload]


def select(facts: Iterable[AnyFact], kind: type[P]) -> Iterator[Fact[P]]:
    """The facts of one kind, in the order of the journal."""
    return (cast("Fact[P]", fact) for fact in facts if isinstance(fact.data, kind))
