"""What a pool's worker sent and its parent could not load; of an exception, who raised it, and why it cannot be made.

A thread of the parent loads what workers send. In multiprocessing.pool an error there ends that thread, and nobody
gets a result any more (python/cpython#103061); concurrent.futures calls the pool broken then, and ends its workers.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer.analyze.behind import Place, places_in
from pytracer.analyze.evidence.exceptions.remaking import CALLED, Remaking
from pytracer.analyze.evidence.exceptions.reraised import broken_by_loading, loading_error
from pytracer.analyze.evidence.failing.explained import explained
from pytracer.analyze.evidence.phrases import error_words
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.error_classes import ErrorConstructor, error_constructor
from pytracer.analyze.evidence.waits.ended_threads import LOADED, EndedThread, died_words
from pytracer.analyze.kin import children_of
from pytracer.analyze.naming import name_words, place_words
from pytracer.analyze.parts import exception_report, innermost_of_program
from pytracer.analyze.view import JobView, ProcessView
from pytracer.blackbox.schema import ON_FETCH
from pytracer.decode.types.journal import Fact, UncaughtException
from pytracer.report.job import Evidence, ExceptionReport, PythonFrame

_RECEIVES = Pattern(r"/multiprocess(?:ing)?/connection\.py$")
_POOL = Pattern(r"/multiprocess(?:ing)?/pool\.py$")
_NAMES = Pattern(r"'(\w+)'")
NO_WORKER = "no worker had died before, and the pool ended them itself"


class NotLoaded(msgspec.Struct, frozen=True):
    """The error of the parent's thread, and its innermost lines."""

    type: str | None
    message: str
    frames: tuple[PythonFrame, ...]

    @property
    def words(self) -> str:
        """`TypeError: DecodeError.__init__() missing 1 required positional argument: 'frame'`."""
        return f"{self.type}: {self.message}" if self.message else f"{self.type}"

    @property
    def subject(self) -> str:
        """Of a pool that was called broken by that."""
        return f"{NO_WORKER}: its thread that takes results could not load what one had sent ({self.words})"

    @property
    def advice(self) -> str:
        """Where to look, where no exception of a worker is known that it was about."""
        return LOADED


class UnmadeError(msgspec.Struct, frozen=True):
    """`report`: what the worker had recorded of its exception. `made`: its class's constructor, where the source is."""

    worker: ProcessView
    report: ExceptionReport
    at: PythonFrame | None
    made: Remaking | None
    failed: NotLoaded

    @property
    def name(self) -> str:
        """`DecodeError`."""
        return (self.report.type or "").rpartition(".")[2]

    @property
    def words(self) -> str:
        """Behind what could not be loaded: who raised it, and why it cannot be made again."""
        at = f" at {place_words(self.at)}" if self.at is not None else ""
        why = self.made.why if self.made is not None else None
        return (
            f"{name_words([self.worker])} had raised {error_words(self.report)}{at}, which cannot be made again from "
            f"its pickle{f': {why}' if why is not None else ''}"
        )

    def ended(self, thread: EndedThread) -> str:
        """Of the pool's thread that died of it: `its thread ..., which takes the results, had died of ..., as ...`."""
        return f"{died_words(thread.report, ', which takes the results,')}, as {self.words}"

    @property
    def advice(self) -> str:
        """How to make it picklable, and what the real error is."""
        real = f"{error_words(self.report)}{f' at {place_words(self.at)}' if self.at is not None else ''}"
        why = explained(self.worker.process.snapshot, self.report, self.report.python_stack or [])
        then = f" {why.words}" if why.words is not None else ""
        return f"{self._mend} The program then gets the error itself, {real}.{then}"

    @property
    def places(self) -> tuple[Place, ...]:
        """Where it was raised, and these lines."""
        own = ((self.at.file, self.at.line),) if self.at is not None and self.at.line is not None else ()
        return (*own, *places_in([self.made.lines if self.made is not None else ()]))

    @property
    def subject(self) -> str:
        """Of a pool that was called broken by that: `no worker had died before: ...`."""
        return f"{NO_WORKER}: its thread that takes results could not load one ({self.failed.words}), as {self.words}"

    @property
    def evidence(self) -> Evidence:
        """What the worker recorded."""
        at = f" at {place_words(self.at)}" if self.at is not None else ""
        return Evidence(
            "exception",
            f"{name_words([self.worker])} recorded {error_words(self.report)}{at}, which it sent to its parent",
            pid=self.worker.process.snapshot.pid,
            rank=self.worker.process.rank,
            exception=self.report.type,
            text=self.report.message,
            python=self.at,
        )

    @property
    def _mend(self) -> str:
        if self.made is not None:
            return self.made.mend
        return (
            f"Let {self.name} give super().__init__() all that its __init__ takes, or define __reduce__(): an "
            "exception is pickled as its class and its `args`, and loading it calls the class with them."
        )


def not_loaded(view: ProcessView) -> NotLoaded | None:
    """What ended the pool's thread that takes results; or what a broken pool has as its reason."""
    for item in view.thread_exceptions:
        frames = item.python_stack or []
        at = next((n for n, frame in enumerate(frames) if _is_receiver(frame)), None)
        if at is not None and any(_POOL.search(frame.file or "") for frame in frames[at:]):
            return NotLoaded(item.type, item.message or "", tuple(frames[:at]))
    own = view.exception
    told = loading_error(own) if own is not None and broken_by_loading(own) else None
    if told is None:
        return None
    return NotLoaded(told.type, told.message, (told.innermost,) if told.innermost is not None else ())


def unmade_error(job: JobView, view: ProcessView) -> UnmadeError | None:
    """The first exception that its children had handed over, and that the failed constructor is of."""
    failed = not_loaded(view)
    if failed is None:
        return None
    for worker, fact in sorted(_handed_over(job, view), key=lambda item: item[1].mono_ns):
        report = exception_report(fact.data)
        frames = report.python_stack or []
        files = program_files(worker.process.snapshot, [frame for frame in frames if not is_library_file(frame.file)])
        made = error_constructor(files, report.type or "")
        if _is_of(failed, report, made):
            at, name = innermost_of_program(frames), (report.type or "").rpartition(".")[2]
            words = Remaking(made, name, at.file if at is not None else None) if made is not None else None
            return UnmadeError(worker, report, at, words, failed)
    return None


def _is_of(failed: NotLoaded, report: ExceptionReport, made: ErrorConstructor | None) -> bool:
    """Whether it was the constructor of this exception that failed, by the message or by a line of it."""
    if made is not None and any(made.has_line(frame.file, frame.line) for frame in failed.frames):
        return True
    called = CALLED.search(failed.message) if failed.type == "TypeError" else None
    if called is None:
        return False
    if called[1] is None:  # by the parameters that it lacks
        lacking = set(_NAMES.findall(failed.message))
        return made is not None and bool(lacking) and lacking <= {*made.takes}
    names = {(report.type or "").rpartition(".")[2], made.owner if made is not None else None}
    return called[1].rpartition(".")[2] in names


def _handed_over(job: JobView, view: ProcessView) -> Iterator[tuple[ProcessView, Fact[UncaughtException]]]:
    for worker in children_of(job, view):
        snapshot = worker.process.snapshot
        for fact in snapshot.recorded(UncaughtException):
            if fact.data.on_its_way == ON_FETCH and fact.mono_ns >= snapshot.created_mono_ns:
                yield worker, fact


def _is_receiver(frame: PythonFrame) -> bool:
    """`recv`, which loads what came."""
    return (frame.function or "").rpartition(".")[2] == "recv" and _RECEIVES.search(frame.file or "") is not None
