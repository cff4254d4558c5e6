"""What a scheduler should do after a failure, as plain data: `pytracer inspect --advise --json`."""

from __future__ import annotations

from typing import Literal

from pytracer.report.process import Part

ADVICE = ("RESTART", "RESTART_ELSEWHERE", "STOP", "UNKNOWN")
Reason = Literal[
    "bug",  #: of the program or its set-up: a restart runs the same code
    "again",  #: it has failed in the same way, at the same line, in another attempt
    "hardware",  #: of the node
    "suspected-hardware",  #: an address that is one bit away from a good one
    "outside",  #: the job was ended from outside
    "network",  #: a connection was lost, and no process that was recorded ended it
    "undecided",  #: the cause may be gone at the next start, or not
    "uncertain",  #: the finding would be a reason to stop, and it is not certain
    "no-cause",  #: no finding explains the end
    "nothing-died",
]


class Advice(Part, frozen=True, kw_only=True):
    """The answer. `evidence` has sentences of the report."""

    schema: str = "pytracer-advice"
    version: int = 1
    advice: str | None = None  #: one of ADVICE
    confidence: str | None = None  #: "certain", "likely", "possible" or "unknown"
    reason: str | None = None  #: one of Reason; may grow
    nodes: list[str] | None = None  #: hosts to avoid
    attempts: list[int] | None = None  #: that failed in this way
    finding: str | None = None  #: id of the rule (docs/reference/rules.md)
    verdict: str | None = None  #: its class (docs/reference/report.md)
    verdict_confidence: str | None = None
    rank: int | None = None
    step: int | None = None  #: that the process was in
    summary: str | None = None
    evidence: list[str] | None = None
