"""A report as the fields that most services have: a title, a text, tags, frames, and what makes two failures alike."""

from __future__ import annotations

from dataclasses import dataclass

from pytracer.report import job as r
from pytracer.report.of_verdict import finding_of, subject_of

ENDED_WELL = ("clean", "recovered")
_UNKNOWN = "unknown"


@dataclass(frozen=True)
class Frame:
    """One frame of the process that died; native ones have an image instead of a line."""

    function: str
    file: str | None
    line: int | None
    native: bool = False


@dataclass(frozen=True)
class Message:
    """What is sent. `fingerprint`: equal for failures of one cause, whatever their rank, pid and addresses are."""

    title: str
    class_: str
    confidence: str
    died: bool
    advice: str | None
    evidence: tuple[str, ...]
    tags: dict[str, str]
    frames: tuple[Frame, ...]  # innermost first: native ones, then Python
    exception: str | None  # type of the exception that ended the process
    fingerprint: tuple[str, ...]
    command: str | None

    @property
    def place(self) -> Frame | None:
        """The innermost line of Python."""
        return next((frame for frame in self.frames if not frame.native and frame.line is not None), None)


def message_of(report: r.Report) -> Message:
    """The message about the verdict."""
    verdict = report.verdict or r.Verdict()
    run = report.run or r.Run()
    died = subject_of(report)
    frames = tuple(_frames(died)) if died is not None else ()
    finding = finding_of(report)
    rule = finding.id if finding is not None else None
    raised = died.exception if died is not None else None
    line = next((frame for frame in frames if not frame.native), None)
    return Message(
        title=verdict.summary or "There is no verdict.",
        class_=verdict.class_ or _UNKNOWN,
        confidence=verdict.confidence or _UNKNOWN,
        died=(verdict.class_ or _UNKNOWN) not in ENDED_WELL,
        advice=verdict.advice,
        evidence=tuple(verdict.evidence or ()),
        tags=_tags(verdict, run, died, rule),
        frames=frames,
        exception=raised.type if raised is not None else None,
        fingerprint=(
            "pytracer",
            verdict.class_ or _UNKNOWN,
            rule or _UNKNOWN,
            _site(line) if line is not None else (frames[0].function if frames else _UNKNOWN),
        ),
        command=" ".join(run.command) if run.command else None,
    )


def _site(frame: Frame) -> str:
    """Without the directory and the line, which differ between machines and versions."""
    return f"{(frame.file or '?').rsplit('/', 1)[-1]}:{frame.function}"


def _frames(died: r.ProcessReport) -> list[Frame]:
    python = died.python_stack or (died.exception.python_stack if died.exception is not None else None) or []
    native = [Frame(f.function, f.image, None, native=True) for f in died.native_stack or () if f.function]
    return native + [Frame(f.function or "?", f.file, f.line) for f in python]


def _tags(verdict: r.Verdict, run: r.Run, died: r.ProcessReport | None, rule: str | None) -> dict[str, str]:
    """Without those that are unknown."""
    signal = died.signal if died is not None else None
    values = {
        "class": verdict.class_,
        "confidence": verdict.confidence,
        "finding": rule,
        "rank": verdict.rank,
        "pid": verdict.pid,
        "host": died.host if died is not None else None,
        "step": died.step if died is not None else None,
        "signal": signal.name if signal is not None else None,
        "run": run.id,
        "world_size": run.world_size,
        "launcher": run.launcher,
        "torch": run.torch,
        "python": run.python,
    }
    return {name: str(value) for name, value in values.items() if value is not None}
