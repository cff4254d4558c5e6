"""A task of a pool that failed, and was to end a wait: its Future keeps the exception until somebody asks."""

from __future__ import annotations

import msgspec

from pytracer.analyze.evidence.phrases import error_words
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waited_object import waited_object
from pytracer.analyze.naming import name_words, place_words
from pytracer.analyze.parts import exception_report, innermost_of_program
from pytracer.analyze.view import ProcessView
from pytracer.blackbox.schema import ON_TASK
from pytracer.decode.types.journal import UncaughtException
from pytracer.report.job import Evidence, ExceptionReport, PythonFrame


class FailedTask(msgspec.Struct, frozen=True):
    """`at`: the program's innermost line."""

    view: ProcessView
    report: ExceptionReport
    at: PythonFrame

    @property
    def words(self) -> str:
        """`a task of its pool had failed with KeyError: 2 at load.py:12 in fill`."""
        return f"a task of its pool had failed with {error_words(self.report)} at {place_words(self.at)}"

    @property
    def advice(self) -> str:
        """Where to look, and how such an error shows itself."""
        return (
            f"Repair {error_words(self.report)} at {place_words(self.at)}: it ended the task that fills what is waited "
            "for. A Future keeps the exception of its task until result() is called: ask for the result of what "
            "submit() returns, or add_done_callback(), so that such an error is raised."
        )

    @property
    def evidence(self) -> Evidence:
        """The exception of the task."""
        return Evidence(
            "thread-exception",
            f"a task of {name_words([self.view])} failed with {error_words(self.report)}, which its Future keeps",
            pid=self.view.process.snapshot.pid,
            rank=self.view.process.rank,
            exception=self.report.type,
            text=self.report.message,
            python=self.at,
        )


def failed_task(view: ProcessView, wait: ProcessWait) -> FailedTask | None:
    """The last one that was in the only function that ends such waits, by the source; else None."""
    thing = waited_object(view, wait)
    functions = {item.function for item in thing.providers} if thing is not None else set()
    if len(functions) != 1 or wait.at is None:
        return None
    snapshot = view.process.snapshot
    for fact in reversed(list(snapshot.recorded(UncaughtException))):
        if fact.data.on_its_way != ON_TASK or fact.mono_ns < snapshot.created_mono_ns:
            continue
        report = exception_report(fact.data)
        frames = report.python_stack or []
        at = innermost_of_program(frames)
        if at is not None and any(frame.function in functions and frame.file == wait.at.file for frame in frames):
            return FailedTask(view, report, at)
    return None
