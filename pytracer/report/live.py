"""The report of `pytracer attach`: the state of a running job, as plain data.

Its JSON: docs/reference/launcher.md. Every field may be None; times are ns before the report was taken ("ago").
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class LiveFrame:
    """A frame, innermost first in its stack; `image` for native ones."""

    function: str | None
    file: str | None = None
    line: int | None = None
    image: str | None = None


@dataclass
class LiveThread:
    """A thread. `state` and `system_call` are the kernel's; frames of unrecorded processes need py-spy or pystack."""

    tid: int
    name: str | None = None
    state: str | None = None
    system_call: str | None = None
    holds_gil: bool | None = None
    python_stack: list[LiveFrame] = field(default_factory=list)
    native_stack: list[LiveFrame] = field(default_factory=list)


@dataclass
class LiveCollective:
    """The last collective of a process, or one that is open."""

    op: str
    group: str | None
    sequence_nr: int
    state: str
    ago_ns: int | None
    dtype: str | None = None
    sizes: list[int] = field(default_factory=list)
    peer: int | None = None
    called_at: LiveFrame | None = None


@dataclass
class LiveProcess:
    """One running process."""

    pid: int
    ppid: int | None = None
    rank: int | None = None
    role: str | None = None
    command: list[str] = field(default_factory=list)
    running_ns: int | None = None
    rss: int | None = None
    step: int | None = None
    last_record: str | None = None
    last_record_ago_ns: int | None = None
    last_collective: LiveCollective | None = None
    open_collectives: list[LiveCollective] = field(default_factory=list)
    stacks_by: str | None = None
    threads: list[LiveThread] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class GroupWait:
    """A process group with an open collective: the ranks that wait in it, and those that have not entered it.

    `disagree`: the operations, when ranks called different ones under the same sequence number. `unseen`: members
    without a recording here, as on another host.
    """

    group: str | None
    op: str
    sequence_nr: int
    since_ns: int | None
    waiting: list[int]
    not_arrived: list[int]
    done: list[int]
    ended: list[int]
    disagree: dict[str, list[int]] | None
    says: str
    unseen: list[int] = field(default_factory=list)


@dataclass
class Deadlock:
    """A wait that the recordings prove to have no end.

    `kind`: "rank-ended" (`awaited` have ended), "different-collectives", "cycle". `ranks` wait.
    """

    kind: str
    says: str
    ranks: list[int]
    awaited: list[int]
    group: str | None
    sequence_nr: int
    since_ns: int | None


@dataclass
class LiveReport:
    """The whole report."""

    schema: str = "pytracer-attach"
    version: int = 1
    run: str | None = None
    directory: str | None = None
    taken: str | None = None
    still_for_seconds: float | None = None
    deadlock: Deadlock | None = None
    waits: list[GroupWait] = field(default_factory=list)
    processes: list[LiveProcess] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
