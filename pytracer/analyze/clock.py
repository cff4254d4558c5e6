"""One clock for a whole run: ns since it started, from the monotonic clocks of several hosts.

Processes of one boot share CLOCK_MONOTONIC and are compared exactly. Boxes of other hosts are placed by their
wall clocks, which may disagree by `FOREIGN_ERROR_NS` or more; `deaths.py` takes that into account.
"""

from __future__ import annotations

from pytracer.decode.snapshot import Job, Snapshot

FOREIGN_ERROR_NS = 2_000_000_000


class RunClock:
    """Turns CLOCK_MONOTONIC of any box into ns since the run started."""

    def __init__(self, job: Job) -> None:
        """Take the launcher's start, else the first box's, as zero."""
        snapshots = [process.snapshot for process in job.processes]
        if job.launcher is not None:
            self.boot_id = job.launcher.boot_id
            self.start_mono_ns = job.launcher.started_mono_ns
            self.start_wall_ns: int = job.launcher.started_wall_ns
            return
        first = min(snapshots, key=lambda snapshot: snapshot.created_wall_ns, default=None)
        self.boot_id = first.boot_id if first else ""
        self.start_mono_ns = first.created_mono_ns if first else 0
        self.start_wall_ns = first.created_wall_ns if first else 0

    def relative(self, snapshot: Snapshot, mono_ns: int | None) -> int | None:
        """`mono_ns` of `snapshot`'s host as ns since the run started; None stays None."""
        if mono_ns is None:
            return None
        if self.is_local(snapshot):
            return mono_ns - self.start_mono_ns
        return mono_ns - snapshot.created_mono_ns + snapshot.created_wall_ns - self.start_wall_ns

    def is_local(self, snapshot: Snapshot) -> bool:
        """Whether the box shares the run's monotonic clock."""
        return snapshot.boot_id == self.boot_id
