"""What the rules look at: each process with the facts of its end, and its death judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import function_words
from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.lookup import AddressSpace
from pytracer.analyze.collectives.matching import Matches
from pytracer.analyze.collectives.wait_graph import Waiting
from pytracer.analyze.parts import StorageReports, innermost_of_program
from pytracer.analyze.platform.instruction import Instruction
from pytracer.analyze.timeline.clock import ProcessClock
from pytracer.analyze.work import Task, Work, task_of, work_of
from pytracer.decode.types.host_counters import SeenProcess
from pytracer.decode.types.snapshot import Crash, Job, Process, SignalSend
from pytracer.report.job import (
    CurrentStream,
    ExceptionReport,
    ExitRequestReport,
    Fault,
    GuardReport,
    HandledExceptionReport,
    LastCollective,
    NativeFrame,
    PythonFrame,
    Signal,
    StackCycle,
    StorageReport,
    Thread,
    ThreadExceptionReport,
)

_NUMBERS = Pattern(r"0x[0-9a-fA-F]+|\d+")
HANDLER_IMAGES = ("libpytracer_core",)
HANDLER_FUNCTIONS = ("__restore_rt", "__kernel_rt_sigreturn")


class RecordedSender(msgspec.Struct, frozen=True):
    """A recorded process that noted sending the signal that ended another one, or itself.

    `sure`: to this very process, by pid and start time; it was alive then, and the call succeeded. Otherwise it was
    sent to a process group, or to a process whose start time is not known.
    """

    sender: Process
    send: SignalSend
    sure: bool

    @property
    def frame(self) -> PythonFrame | None:
        """The Python line that sent it: the innermost one of the user's program, else the innermost one.

        Of torchrun's agent always that: its program is a script that calls torch.
        """
        frames = [PythonFrame(function=f.function, file=f.file, line=f.line) for f in self.send.stack]
        outside = [frame for frame in frames if not is_library_file(frame.file)]
        return next(iter(frames if self.sender.role == "launcher" else [*outside, *frames]), None)


_WORK = ("NODE", "OP", "STEP")  # records that only a process at work leaves


@dataclass(frozen=True)
class ProcessView:
    """One process and the facts of its end, in the report's vocabulary. `index` is its place in the job.

    `place` is the fault address explained, `fault` the access to it. The stacks are those of the crash, of the uncaught
    exception, or of an exit in mid-work. `region_opener`: who opened the parallel region that an OpenMP worker was in,
    and `region_python` where that was in Python. `collectives`: the last one of each operation, newest first.
    `ended_ns`: on the run's clock. `senders`: who noted sending the signal that ended it, oldest first; any of them.
    `thread_exceptions`: those that ended threads, not the process, oldest first. `handled`: what the program had caught
    and was handling at its end. `seen`: what its launcher saw of it while it ran. `killed_for`: why that launcher ended
    the job, with --hang-action kill, where it had to kill this process.
    """

    index: int
    process: Process
    storages: StorageReports
    place: Place | None = None
    instruction: Instruction | None = None
    ended_ns: int | None = None
    signal: Signal | None = None
    fault: Fault | None = None
    exception: ExceptionReport | None = None
    thread: Thread | None = None
    python_stack: list[PythonFrame] | None = None
    native_stack: list[NativeFrame] | None = None
    region_opener: Thread | None = None
    region_python: list[PythonFrame] = field(default_factory=list)
    stack_cycle: StackCycle | None = None
    collectives: list[LastCollective] = field(default_factory=list)
    current_stream: CurrentStream | None = None
    guard: GuardReport | None = None
    senders: tuple[RecordedSender, ...] = ()
    thread_exceptions: tuple[ThreadExceptionReport, ...] = ()
    exit_request: ExitRequestReport | None = None
    handled: HandledExceptionReport | None = None
    seen: SeenProcess | None = None
    killed_for: str | None = None

    @property
    def cpu_share(self) -> float | None:
        """Of one processor, on the average of the time for which it was seen; None where that is not known."""
        seen = self.seen
        if seen is None or seen.cpu_seconds is None or not self.seen_ns:
            return None
        return seen.cpu_seconds * 1e9 / self.seen_ns

    @property
    def seen_ns(self) -> int:
        """For how long its launcher saw it run."""
        return self.seen.alive_mono_ns - self.seen.first_mono_ns if self.seen is not None else 0

    @property
    def space(self) -> AddressSpace:
        """Its address space."""
        return self.storages.space

    @property
    def clock(self) -> ProcessClock:
        """Its clock, for times of the run."""
        return self.storages.clock

    @property
    def crash(self) -> Crash | None:
        """What the handler wrote, unless another handler repaired the fault."""
        crash = self.process.snapshot.crash
        return None if crash is None or crash.repaired else crash

    @property
    def raised(self) -> bool:
        """Whether an uncaught exception began this end."""
        return began_with_exception(self.process, self.crash)

    @property
    def last_collective(self) -> LastCollective | None:
        """The last collective of any operation."""
        return self.collectives[0] if self.collectives else None

    @cached_property
    def work(self) -> Work | None:
        """What the process is to the framework that started it."""
        return work_of(self.process.snapshot, self.python_stack or self.exception_stack)

    @cached_property
    def task(self) -> Task | None:
        """What it was doing."""
        return task_of(self.process.snapshot, self.python_stack or self.exception_stack)

    @property
    def step(self) -> int | None:
        """The optimizer steps that it had finished."""
        return self.process.snapshot.step

    @property
    def storage(self) -> StorageReport | None:
        """The storage that the fault address belonged to."""
        return self.fault.storage if self.fault else None

    @property
    def is_fault(self) -> bool:
        """Whether the kernel raised the signal because of the program's own action, not because it was sent."""
        return self.crash is not None and self.crash.code > 0

    @property
    def left_well(self) -> bool:
        """Whether the process ended by itself, with status 0."""
        return self.process.status_kind == "exited" and self.process.exit_code == 0

    @property
    def function(self) -> str | None:
        """The innermost native function that is not part of crash handling, without its arguments."""
        frame = self.native_frame
        return function_words(frame.function) if frame is not None and frame.function else None

    @property
    def native_frame(self) -> NativeFrame | None:
        """The innermost native frame that is not part of crash handling."""
        return next((frame for frame in self.native_stack or () if not is_handler_frame(frame)), None)

    @property
    def exception_stack(self) -> list[PythonFrame]:
        """Where the uncaught exception was raised, innermost first."""
        return (self.exception.python_stack if self.exception else None) or []

    @property
    def exception_stack_of_program(self) -> list[PythonFrame]:
        """The same without frames of libraries."""
        return [frame for frame in self.exception_stack if not is_library_file(frame.file)]

    @property
    def python_frame(self) -> PythonFrame | None:
        """The innermost Python frame of the user's program, else the innermost one."""
        stack = self.exception_stack if self.raised else self.python_stack or self.region_python
        return innermost_of_program(stack)


def began_with_exception(process: Process, crash: Crash | None) -> bool:
    """Whether an uncaught exception began an end. A signal that came later met a process that was tearing down.

    Not when the process continued after the exception: then it was caught after all.
    """
    at = process.exception_mono_ns
    if at is None or process.status_kind not in ("exception", "signaled"):
        return False
    if process.status_kind == "exception":
        return True
    if crash is not None and crash.mono_ns < at:
        return False
    return not any(event.kind in _WORK and event.mono_ns > at for event in process.snapshot.events)


class WhyKind(Enum):
    """Why a death is the cause, a consequence, or undecided. Consequences: docs/guide/who-died-first.md."""

    FIRST = "first"
    ABSENT = "absent"  # first: it never entered the collective in which others waited
    ALIKE = "alike"  # the same fault as the first one, independently
    UNDECIDED = "undecided"
    REPORTED = "reported"
    SENT = "sent"
    NETWORK = "network"
    TEARDOWN = "teardown"
    CLEANUP = "cleanup"
    LIMIT = "limit"  # timeout(1) ended the job
    FINDING = "finding"  # a finding about the whole job explains it


class Death(msgspec.Struct, frozen=True):
    """One process's end, for the order of events. Times are ns since the run started; the death lies between them.

    `nature` is "fault", "abort", "sent", "interrupt", "exception", "exit", "left" or "vanished"; "left" is an end that
    is known by what it did to others: they waited for the process in a collective, and it never entered.
    `error_ns`: how far the times may be off against those of other boots. `lost_peer`: what it reports about its end
    speaks of another process. `cleanup`: it had begun to leave the job before.
    `primary`, `kind` and `why` are the judgement of `deaths/order.py`; `of` is the index of the process whose death
    made this one raise, where that alone did. `by_finding`: a finding about the whole job accounts for it, and the
    process itself is among those that the finding names.
    """

    view: ProcessView
    nature: str
    what: str
    early_ns: int | None
    late_ns: int | None
    boot: str = ""
    error_ns: int = 0
    lost_peer: bool = False
    cleanup: bool = False
    primary: bool | None = None
    kind: WhyKind | None = None
    why: str | None = None
    of: int | None = None
    by_finding: bool = False

    @property
    def first_ns(self) -> float:
        """The earliest moment, on the run's clock."""
        return 0.0 if self.early_ns is None else self.early_ns

    @property
    def last_ns(self) -> float:
        """The latest moment, on the run's clock; infinite when the end was not recorded."""
        return float("inf") if self.late_ns is None else self.late_ns

    def surely_before(self, other: Death) -> bool:
        """Whether the evidence leaves no other order. Exact on one boot, with both errors between two."""
        errors = 0 if self.boot == other.boot else self.error_ns + other.error_ns
        return self.last_ns + errors < other.first_ns

    def maybe_before(self, other: Death) -> bool:
        """Whether this death may have come before, or with, the other one."""
        return not other.surely_before(self)


@dataclass(frozen=True)
class JobView:
    """The whole job. `explained`: indices of processes for which an earlier rule has a finding (for the last rule).

    `matches` and `waiting`: the result of matching the ranks' collectives.
    """

    job: Job
    views: tuple[ProcessView, ...]
    deaths: tuple[Death, ...] = ()
    explained: frozenset[int] = field(default_factory=frozenset)
    matches: Matches = field(default_factory=Matches)
    waiting: Waiting = field(default_factory=Waiting)

    @property
    def suspects(self) -> tuple[ProcessView, ...]:
        """The processes whose death is not known to be a consequence: what the rules about causes check."""
        return tuple(death.view for death in self.deaths if death.primary is not False)


def group_alike(views: Sequence[ProcessView]) -> list[list[ProcessView]]:
    """Processes that died the same way - same signal, function and kind of address - share one finding."""
    groups: dict[tuple[object, ...], list[ProcessView]] = {}
    for view in views:
        groups.setdefault(death_signature(view), []).append(view)
    return list(groups.values())


def death_signature(view: ProcessView) -> tuple[object, ...]:
    """What two independent deaths of one cause have in common; unique when too little is known to compare."""
    if view.raised:
        return _exception_signature(view)
    native = view.native_frame
    if view.crash is None or native is None or not (native.function or native.image):
        return ("alone", view.index)
    where = (native.image, native.function or native.offset)
    frame = view.python_frame
    place = (frame.file, frame.line) if frame else None
    return (view.crash.signal, view.crash.code, where, view.place.kind if view.place else None, place)


def _exception_signature(view: ProcessView) -> tuple[object, ...]:
    """Type, message but for its numbers, and the lines on the way; unique without a stack."""
    exception, stack = view.exception, view.exception_stack
    if exception is None or not exception.type or not stack:
        return ("alone", view.index)
    message = _NUMBERS.sub("0", exception.message or "")
    return (exception.type, message, tuple((frame.file, frame.line) for frame in stack))


def is_handler_frame(frame: NativeFrame) -> bool:
    """Whether a native frame belongs to pytracer's crash handler or to the kernel's way into it."""
    image = (frame.image or "").rsplit("/", 1)[-1]
    return image.startswith(HANDLER_IMAGES) or (frame.function or "") in HANDLER_FUNCTIONS
