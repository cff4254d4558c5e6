"""A command that failed: what it wrote to its standard error, which the program captured and did not show."""

from __future__ import annotations

from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.evidence.failing.line import FailingLine

_FAILED = Pattern(r"^Command (?P<command>.+) returned non-zero exit status (?P<status>\d+)")
_ERROR = Pattern(  # a warning, or a bar of progress, is no reason of a status
    r"(?i:error|exception|cannot|can't|no such|not found|fail|invalid|denied|unknown|unable|usage:|fatal|refused|abort)"
)


def failed_command(at: FailingLine) -> str | None:
    """What it wrote counts, not the line that called it."""
    subject, found = failed_command_subject(at), _FAILED.search(at.message)
    if subject is None or found is None:
        return None
    mend = "Mend that" if _ERROR.search(subject) else "The reason lies in the command"
    return (
        f"{capital(subject)}. {mend}: line {at.line} only passes its exit status {found['status']} "
        "on. Run the command by hand, in the same directory and environment, for all of its output."
    )


def failed_command_subject(at: FailingLine) -> str | None:
    """For the headline."""
    text = at.values.get("written to stderr")
    failed = at.kind == "CalledProcessError" and _FAILED.search(at.message) is not None  # a signal is no reason of it
    return f"it wrote to stderr: {text}" if text and failed else None
