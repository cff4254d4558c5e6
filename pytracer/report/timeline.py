"""The parts of the report about time: the steps and collectives of a process, and who waits for whom."""

from __future__ import annotations

from pytracer.report.process import Part, PythonFrame


class StepMark(Part, frozen=True):
    """The moment at which a training step was counted."""

    step: int | None = None
    time: int | None = None


class CollectiveSpan(Part, frozen=True, omit_defaults=True):
    """A collective or point-to-point operation over time; keys without a value are left out."""

    group: str | None = None
    op: str | None = None
    sequence_nr: int | None = None  #: as in `LastCollective`
    peer: int | None = None  #: rank in the group
    state: str | None = None  #: as `LastCollective.state`
    scheduled: int | None = None  #: when it was called
    started: int | None = None
    completed: int | None = None  #: when it ended, also of a failed one; null while it is open
    step: int | None = None
    what: str | None = None  #: as `CollectiveBuffer.what`
    python: PythonFrame | None = None  #: line of the call, outside torch where known


class Timeline(Part, frozen=True):
    """The last steps and collectives of a process, oldest first: 64 of each, and fewer in jobs of many processes."""

    steps: list[StepMark] | None = None
    steps_left_out: int | None = None  #: earlier ones that the recording has
    collectives: list[CollectiveSpan] | None = None
    collectives_left_out: int | None = None  #: earlier ones that were read from the recording


class Wait(Part, frozen=True):
    """Ranks that wait for others, in one operation."""

    ranks: list[int] | None = None
    targets: list[int] | None = None
    group: str | None = None
    op: str | None = None
    sequence_nr: int | None = None  #: as in `LastCollective`
    since: int | None = None  #: when the first of them called it
    tags: list[int] | None = None  #: of a send and its receive: own tag and the other side's, when they differ
