"""The launcher's observations of a run, as frozen data; "witness" in run.json (docs/reference/launcher.md).

Values are bytes, counts and CLOCK_MONOTONIC ns; None is "could not be read", for which `why` fields have the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import msgspec

Amount = Annotated[float, msgspec.Meta(ge=0, le=1 << 63)]  # sums and products of larger ones overflow


class MemoryGroup(msgspec.Struct, frozen=True):
    """Counters of one memory cgroup. `limit_hits` is version 1's failcnt, `max` version 2's count of the same."""

    version: int
    path: str
    oom_kill: int | None = None
    oom_group_kill: int | None = None
    oom: int | None = None
    max: int | None = None
    current: int | None = None
    peak: int | None = None
    limit: int | None = None  # None also for "no limit"
    limit_hits: int | None = None
    why: str | None = None


class Counters(msgspec.Struct, frozen=True):
    """All counters at one moment. The first cgroup is the launcher's own, its ancestors follow, then others."""

    mono_ns: int
    cgroups: tuple[MemoryGroup, ...] = ()
    cgroups_why: str | None = None
    vmstat_oom_kill: int | None = None
    vmstat_why: str | None = None
    psi_memory: dict[str, Amount] | None = None
    mem_available: int | None = None
    swap_free: int | None = None


class KernelLine(msgspec.Struct, frozen=True):
    """A line of the kernel's log; `log_us` is the kernel's own clock, `seen_mono_ns` when the launcher read it."""

    text: str
    log_us: int | None = None
    seen_mono_ns: int | None = None


@dataclass(frozen=True)
class KernelLog:
    """The lines about kills, faults and hardware while the job ran. `lost`: times that it overflowed unread."""

    readable: bool = False
    why: str | None = None
    lines: tuple[KernelLine, ...] = ()
    left_out: int = 0
    lost: int = 0


class MemorySample(msgspec.Struct, frozen=True):
    """Memory at one moment; `rss` of all traced processes together."""

    mono_ns: int
    mem_available: int | None = None
    swap_free: int | None = None
    cgroup_current: int | None = None
    rss: int | None = None


@dataclass(frozen=True)
class SeenProcess:
    """A traced process, and the moments between which it ended. `how`: "pidfd", "zombie" or "reaped".

    `address_space`, `cpu_seconds`: when it was last seen alive. `limits`: soft and hard, None for none, of "cpu
    seconds", "file size", "data" and "address space"; only those that are set. `first_limits`: those that it had
    when it was first seen, where it has others since.
    """

    pid: int
    start_ticks: int
    first_mono_ns: int
    alive_mono_ns: int
    gone_mono_ns: int | None = None
    rss: int | None = None
    rss_peak: int | None = None
    swap: int | None = None
    address_space: Amount | None = None
    cpu_seconds: Amount | None = None
    limits: dict[str, tuple[Amount | None, Amount | None]] | None = None
    first_limits: dict[str, tuple[Amount | None, Amount | None]] | None = None
    cgroup: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    how: str | None = None
    command: tuple[str, ...] = ()


class UnseenProcess(msgspec.Struct, frozen=True):
    """A descendant of the job that ran Python or torch without the recorder.

    `lacks`: what its environment lacked of LD_PRELOAD and PYTRACER_DIR; None: it could not be read.
    """

    pid: int
    start_ticks: int
    command: tuple[str, ...] = ()
    torch: bool = False
    lacks: tuple[str, ...] | None = None


class Killer(msgspec.Struct, frozen=True):
    """A running program that kills when memory is short."""

    pid: int
    name: str


@dataclass(frozen=True)
class Witness:
    """Everything. `ended` is False when the launcher died before its job: then `after` is old or None.

    `first_pid_namespace`: pids of this run are those of the kernel's log.
    """

    before: Counters
    after: Counters | None = None
    ended: bool = False
    kernel_log: KernelLog = field(default_factory=KernelLog)
    samples: tuple[MemorySample, ...] = ()
    processes: tuple[SeenProcess, ...] = ()
    killers: tuple[Killer, ...] | None = None
    scheduler: dict[str, str] = field(default_factory=dict)
    first_pid_namespace: bool | None = None
    unseen: tuple[UnseenProcess, ...] = ()

    def process(self, pid: int, start_ticks: int) -> SeenProcess | None:
        """What was seen of one process."""
        known = (item for item in self.processes if item.pid == pid and item.start_ticks == start_ticks)
        return next(known, None)


@dataclass(frozen=True)
class Usage:
    """What the command and its reaped descendants used. `maxrss` is that of the largest process."""

    maxrss: int | None = None
    user_seconds: Amount | None = None
    system_seconds: Amount | None = None
    major_faults: int | None = None
    minor_faults: int | None = None
    core_dumped: bool | None = None
