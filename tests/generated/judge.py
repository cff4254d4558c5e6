"""Compares a report with what was built into the program. By data alone: no sentence is read."""

from __future__ import annotations

from dataclasses import dataclass

from pytracer.report.job import ProcessReport, Report
from tests.generated.generator import Program
from tests.generated.runner import Died

# Classes whose finding is about the storage in `fault`; for others it is only what was close.
_ABOUT_STORAGES = ("use-after-free", "out-of-bounds")


@dataclass(frozen=True)
class Judged:
    """What the report said, and how much of it is so.

    `class_is`: "right", "defensible" or "wrong"; "nothing" where the program did not die or left no recording. Of the
    other parts True, False, and None where nothing was said or nothing could be known.
    """

    program: Program
    class_: str
    confidence: str
    class_is: str
    culprit: bool | None = None
    storage: bool | None = None
    line: bool | None = None
    thread: bool | None = None
    summary: str = ""

    @property
    def wrong(self) -> tuple[str, ...]:
        """What is wrong, by name. To say nothing is not wrong."""
        parts = {"culprit": self.culprit, "storage": self.storage, "line": self.line, "thread": self.thread}
        words = ["class"] if self.class_is == "wrong" else []
        return (*words, *(name for name, right in parts.items() if right is False))


def judge(program: Program, died: Died) -> Judged:
    """What the report says about the death of the process that the program noted."""
    notes, report = died.notes, died.report
    if report is None or report.verdict is None or notes.get("survived") or "pid" not in notes:
        return Judged(program, "", "", "nothing", summary=_why_nothing(died))
    verdict, truth = report.verdict, program.truth
    said = verdict.class_ or ""
    class_is = "right" if said in truth.right else "defensible" if said in (*truth.defensible, "unknown") else "wrong"
    process = _process(report, notes["pid"])
    return Judged(
        program,
        said,
        verdict.confidence or "",
        class_is,
        verdict.pid == notes["pid"] if verdict.pid is not None else None,
        _storage(program, notes.get("base"), process, said),
        _line(program, process),
        _thread(program, process),
        verdict.summary or "",
    )


def _why_nothing(died: Died) -> str:
    if died.notes.get("survived"):
        return "the access was not refused"
    if "pid" not in died.notes:
        return "it did not reach the place of its death"
    return "no recording"


def _process(report: Report, pid: int) -> ProcessReport | None:
    return next((process for process in report.processes or () if process.pid == pid), None)


def _storage(program: Program, base: int | None, process: ProcessReport | None, said: str) -> bool | None:
    storage = process.fault.storage if process and process.fault else None
    meant = program.truth.storage
    if storage is None or storage.base is None or said not in _ABOUT_STORAGES or meant is False:
        return None
    return meant is True and int(storage.base, 16) == base


def _thread(program: Program, process: ProcessReport | None) -> bool | None:
    kind = process.thread.kind if process and process.thread else None
    if kind is None or program.truth.thread is None or (kind, program.truth.thread) == ("native", "openmp"):
        return None  # with a damaged stack an OpenMP worker is merely a native thread
    return kind == program.truth.thread


def _line(program: Program, process: ProcessReport | None) -> bool | None:
    """The innermost frame of the program's own file: that of the crashed thread, or of the exception.

    A loop that ran over the heap may have overwritten where the lines are: then there is a function, and no line.
    """
    if program.truth.line is None or process is None:
        return None
    stack = process.python_stack or (process.exception.python_stack if process.exception else None) or []
    own = [frame for frame in stack if (frame.file or "").endswith(f"/generated_{program.seed}.py")]
    return own[0].line == program.truth.line if own and own[0].line is not None else None
