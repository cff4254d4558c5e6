"""A command that failed: what it wrote to its standard error, which the program captured and did not show."""

from __future__ import annotations

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine

_FAILED = Pattern(r"^Command (?P<command>.+) returned non-zero exit status (?P<status>\d+)")


def failed_command(at: FailingLine) -> str | None:
    """What it wrote counts, not the line that called it."""
    subject, found = failed_command_subject(at), _FAILED.search(at.message)
    if subject is None or found is None:
        return None
    return (
        f"{subject[:1].upper()}{subject[1:]}. Mend that: line {at.line} only passes its exit status {found['status']} "
        "on. Run the command by hand, in the same directory and environment, for all of its output."
    )


def failed_command_subject(at: FailingLine) -> str | None:
    """For the headline."""
    text = at.values.get("written to stderr")
    return f"it wrote to stderr: {text}" if text and at.kind == "CalledProcessError" else None
