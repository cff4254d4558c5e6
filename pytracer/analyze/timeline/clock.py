"""One clock for a whole run: ns since it started, from the monotonic clocks of several hosts (`order.py`)."""

from __future__ import annotations

import msgspec

from pytracer.analyze.timeline.order import WALL_ERROR_NS, HostClock, host_clocks
from pytracer.decode.types.snapshot import Job, Snapshot


class RunClock:
    """The clock of a run, to which the clock of every recording is compared."""

    def __init__(self, job: Job) -> None:
        """Zero is the launcher's start, else the first recording's."""
        snapshots = [process.snapshot for process in job.processes]
        first = min(snapshots, key=lambda snapshot: snapshot.created_wall_ns, default=None)
        if job.launcher is not None:
            self.boot_id = job.launcher.boot_id
            self.start_mono_ns = job.launcher.started_mono_ns
            self.start_wall_ns: int = job.launcher.started_wall_ns
        else:
            self.boot_id = first.boot_id if first else ""
            self.start_mono_ns = first.created_mono_ns if first else 0
            self.start_wall_ns = first.created_wall_ns if first else 0
        self._hosts = host_clocks(job, self.boot_id)

    def of(self, snapshot: Snapshot) -> ProcessClock:
        """The clock of one recording."""
        return ProcessClock(self._host(snapshot), self.start_mono_ns)

    def _host(self, snapshot: Snapshot) -> HostClock:
        known = self._hosts.get(snapshot.boot_id)
        if known is not None:
            return known
        offset = snapshot.created_wall_ns - self.start_wall_ns + self.start_mono_ns - snapshot.created_mono_ns
        return HostClock(offset, WALL_ERROR_NS, "wall clock")


class ProcessClock(msgspec.Struct, frozen=True):
    """Converts CLOCK_MONOTONIC of one recording into ns since the run started. `host`: the clock of its host."""

    host: HostClock
    start_mono_ns: int

    def relative(self, mono_ns: int | None) -> int | None:
        """`mono_ns` as ns since the run started, right to `error_ns`; None stays None."""
        return None if mono_ns is None else mono_ns + self.host.offset_ns - self.start_mono_ns

    @property
    def error_ns(self) -> int:
        """How far times of this recording may differ from those of the run's own host; 0 on that host."""
        return self.host.error_ns
