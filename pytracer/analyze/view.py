"""What the rules look at: each process with the facts of its end, and its death judged."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pytracer._text import function_words, ranks_words
from pytracer.analyze.address_space.address_info import Place
from pytracer.analyze.address_space.lookup import AddressSpace
from pytracer.analyze.collectives.matching import Matches
from pytracer.analyze.collectives.wait_graph import Waiting
from pytracer.analyze.platform.instruction import Instruction
from pytracer.decode.types.snapshot import Crash, Job, Process
from pytracer.report.job import (
    CurrentStream,
    Evidence,
    ExceptionReport,
    Fault,
    Finding,
    GuardReport,
    LastCollective,
    NativeFrame,
    PythonFrame,
    Signal,
    StackCycle,
    StorageReport,
    Thread,
)

_LIBRARY = re.compile(r"/(site-packages|dist-packages|lib/python3\.\d+|pytracer/record)/")
HANDLER_IMAGES = ("libpytracer_core",)
HANDLER_FUNCTIONS = ("__restore_rt", "__kernel_rt_sigreturn")


_WORK = ("NODE", "OP", "STEP")  # records that only a process at work leaves


@dataclass(frozen=True)
class ProcessView:
    """One process and the facts of its end, in the report's vocabulary. `index` is its place in the job.

    `place` is the fault address explained, `fault` the access to it. The stacks are those of the crash, of the uncaught
    exception, or of an exit in mid-work. `collectives`: the last one of each operation, newest first. `ended_ns`: on
    the run's clock.
    """

    index: int
    process: Process
    space: AddressSpace
    place: Place | None = None
    instruction: Instruction | None = None
    ended_ns: int | None = None
    signal: Signal | None = None
    fault: Fault | None = None
    exception: ExceptionReport | None = None
    thread: Thread | None = None
    python_stack: list[PythonFrame] | None = None
    native_stack: list[NativeFrame] | None = None
    stack_cycle: StackCycle | None = None
    collectives: list[LastCollective] = field(default_factory=list)
    current_stream: CurrentStream | None = None
    guard: GuardReport | None = None

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
        """Whether the kernel raised the signal because of what the program did, not because somebody sent it."""
        return self.crash is not None and self.crash.code > 0

    @property
    def subject(self) -> str:
        """`Rank 1`, or `Process 4711 (train.py)`."""
        return subject_words([self])

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
    def python_frame(self) -> PythonFrame | None:
        """The innermost Python frame of the user's program, else the innermost one."""
        stack = self.exception_stack if self.raised else self.python_stack or []
        outside = [frame for frame in stack if not is_library_file(frame.file)]
        return next(iter([*outside, *stack]), None)


def began_with_exception(process: Process, crash: Crash | None) -> bool:
    """Whether an uncaught exception began an end. A signal that came later met a process that was tearing down.

    Not when the process went on working after the exception: then somebody had caught it after all.
    """
    at = process.exception_mono_ns
    if at is None or process.status_kind not in ("exception", "signaled"):
        return False
    if process.status_kind == "exception":
        return True
    if crash is not None and crash.mono_ns < at:
        return False
    return not any(event.kind in _WORK and event.mono_ns > at for event in process.snapshot.events)


@dataclass(frozen=True)
class Death:
    """One process's end, for the order of events. Times are ns since the run started; the death lies between them.

    `nature` is "fault", "abort", "sent", "interrupt", "exception", "exit", "left" or "vanished"; "left" is an end that
    is known by what it did to others: they waited for the process in a collective, and it never came.
    `error_ns`: how far the times may be off against those of other boots. `lost_peer`: what it says about its end
    speaks of another process. `cleanup`: it had begun to leave the job before.
    `primary`, `kind` and `why` are the judgement of `deaths/order.py`; `kind` is "primary", "undecided", "reported",
    "sent", "network", "teardown" or "cleanup". `by_finding`: a finding about the whole job accounts for it, and the
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
    kind: str | None = None
    why: str | None = None
    by_finding: bool = False

    @property
    def first_ns(self) -> float:
        """The earliest moment, on the run's clock."""
        return 0.0 if self.early_ns is None else self.early_ns

    @property
    def last_ns(self) -> float:
        """The latest moment, on the run's clock; endless when nobody saw the end."""
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

    `matches` and `waiting`: what the ranks' collectives say together.
    """

    job: Job
    views: tuple[ProcessView, ...]
    deaths: tuple[Death, ...] = ()
    explained: frozenset[int] = field(default_factory=frozenset)
    matches: Matches = field(default_factory=Matches)
    waiting: Waiting = field(default_factory=Waiting)

    @property
    def suspects(self) -> tuple[ProcessView, ...]:
        """The processes whose death is not known to be a consequence: what the rules about causes examine."""
        return tuple(death.view for death in self.deaths if death.primary is not False)


@dataclass(frozen=True)
class Draft:
    """A finding, with the verdict class that it would give and the processes it is about.

    `accompanies`: a circumstance, not a cause. It is told beside the verdict and explains no death by itself.
    `leads`: it lies behind the deaths in `explains`, each with the reason, which then are consequences; when these are
    all deaths, it comes before all findings about them. `undecided`: no process is named as the guilty one.
    """

    finding: Finding
    verdict_class: str
    views: tuple[ProcessView, ...]
    accompanies: bool = False
    leads: bool = False
    explains: tuple[tuple[ProcessView, str], ...] = ()
    undecided: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a rule has to say: findings, or why there are none (`result` is "not-found" or "cannot-decide")."""

    drafts: tuple[Draft, ...] = ()
    result: str = "not-found"
    why: str = ""


def not_found(why: str) -> Outcome:
    """The rule looked, and its cause is not there."""
    return Outcome(result="not-found", why=why)


def cannot_decide(why: str) -> Outcome:
    """The rule lacks something it needs."""
    return Outcome(result="cannot-decide", why=why)


def draft(
    rule: str,
    verdict_class: str,
    confidence: str,
    views: Sequence[ProcessView],
    summary: str,
    evidence: Sequence[str | None],
    advice: str,
    missing: Sequence[str | None] = (),
) -> Draft:
    """Put a finding together; None among evidence and missing is left out."""
    summary = _with_samples(views, summary)
    finding = Finding(
        id=rule,
        confidence=confidence,
        ranks=sorted({rank for view in views if (rank := rank_or_parents(view)) is not None}),
        summary=summary,
        evidence=[item if isinstance(item, Evidence) else Evidence(item) for item in evidence if item],
        missing=[item for item in missing if item],
        advice=advice,
    )
    return Draft(finding, verdict_class, tuple(views))


def rank_or_parents(view: ProcessView) -> int | None:
    """The rank of a process; of a DataLoader worker that of the rank it loads for."""
    process = view.process
    return process.parent_rank if process.role == "dataloader-worker" else process.rank


def _with_samples(views: Sequence[ProcessView], summary: str) -> str:
    """A DataLoader worker is introduced with the samples that it was loading."""
    subject, worker = subject_words(views), views[0].process.snapshot.worker if len(views) == 1 else None
    if worker is None or not worker.loading or not summary.startswith(subject):
        return summary
    if worker.batch_indices:
        what = f"sample{'s' * (worker.batch_count != 1)} {worker.batch_indices}"
    else:
        what = f"a batch of {worker.batch_count}"
    return f"{subject}, loading {what},{summary[len(subject) :]}"


def group_alike(views: Sequence[ProcessView]) -> list[list[ProcessView]]:
    """Processes that died the same way - same signal, function and kind of address - share one finding."""
    groups: dict[tuple[object, ...], list[ProcessView]] = {}
    for view in views:
        groups.setdefault(death_signature(view), []).append(view)
    return list(groups.values())


def death_signature(view: ProcessView) -> tuple[object, ...]:
    """What two independent deaths of one cause have in common; unique when too little is known to compare."""
    native = view.native_frame
    if view.crash is None or native is None or not (native.function or native.image):
        return ("alone", view.index)
    where = (native.image, native.function or native.offset)
    frame = view.python_frame
    place = (frame.file, frame.line) if frame else None
    return (view.crash.signal, view.crash.code, where, view.place.kind if view.place else None, place)


def subject_words(views: Sequence[ProcessView]) -> str:
    """`Rank 1`, `Ranks 0 and 1`, or `Process 4711 (train.py)` for a process that is no rank."""
    processes = [view.process for view in views]
    ranks = sorted({item.rank for item in processes if item.role == "rank" and item.rank is not None})
    if ranks:
        return ranks_words(ranks)
    process = processes[0]
    worker, parent = process.snapshot.worker, process.parent_rank
    if worker is not None and worker.worker_id is not None:
        of = f" of rank {parent}" if parent is not None else f" (pid {process.snapshot.pid})"
        return f"DataLoader worker {worker.worker_id}{of}"
    kind = {"dataloader-worker": "DataLoader worker", "launcher": "Launcher"}.get(process.role, "Process")
    program = program_name(process.snapshot.argv)
    return f"{kind} {process.snapshot.pid}" + (f" ({program})" if program else "")


def program_name(argv: Sequence[str]) -> str:
    """The script or module of a Python command line, else the program, without folders."""
    if not argv:
        return ""
    program = argv[0].rsplit("/", 1)[-1]
    if not program.startswith("python"):
        return program
    for position, argument in enumerate(argv[1:], 1):
        if argument == "-m" and position + 1 < len(argv):
            return argv[position + 1]
        if argument == "-c":
            return f"{program} -c"
        if not argument.startswith("-"):
            return argument.rsplit("/", 1)[-1]
    return program


def is_handler_frame(frame: NativeFrame) -> bool:
    """Whether a native frame belongs to pytracer's crash handler or to the kernel's way into it."""
    image = (frame.image or "").rsplit("/", 1)[-1]
    return image.startswith(HANDLER_IMAGES) or (frame.function or "") in HANDLER_FUNCTIONS


def is_library_file(file: str | None) -> bool:
    """Whether a Python file belongs to an installed package or to the standard library, not to the user's program."""
    return file is None or _LIBRARY.search(file) is not None or file.startswith("<frozen")


def short_file(file: str | None) -> str:
    """Below site-packages for libraries, the bare name for others."""
    if not file:
        return "?"
    for folder in ("/site-packages/", "/dist-packages/"):
        if folder in file:
            return file.split(folder, 1)[1]
    return file.rsplit("/", 1)[-1]


def place_words(frame: PythonFrame) -> str:
    """`train.py:12 in main`: short, for sentences; the report's frames keep whole paths."""
    line = f":{frame.line}" if frame.line is not None else ""
    return f"{short_file(frame.file)}{line} in {frame.function or '?'}"
