"""What `pytracer diff` prints: how two runs differ. As in `job.py`, any field may be None."""

from __future__ import annotations

from pytracer.report.process import Part

DIFF_SCHEMA = "pytracer-diff"
DIFF_VERSION = 1


class ComparedRun(Part, frozen=True):
    """One of the two runs."""

    directory: str | None = None
    started: str | None = None
    verdict: str | None = None  #: class
    summary: str | None = None


class Difference(Part, frozen=True):
    """Something that is not the same in both runs."""

    #: "run", "versions", "environment", "libraries", "steps", "collectives", "memory" or "processes"
    topic: str | None = None
    name: str | None = None  #: e.g. the variable
    ranks: list[int] | None = None  #: of which it is true; null for the run as a whole
    a: str | None = None  #: in the first run; null when it is not there
    b: str | None = None  #: in the second run


class DiffReport(Part, frozen=True):
    """How two runs differ."""

    schema: str = DIFF_SCHEMA
    version: int = DIFF_VERSION
    a: ComparedRun | None = None
    b: ComparedRun | None = None
    differences: list[Difference] | None = None
    same: dict[str, int] | None = None  #: by topic, how many things were compared and are the same
