"""Job -> the report about the run as a whole: command, versions, damage, counters."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, timezone

from pytracer.analyze.timeline.clock import RunClock
from pytracer.decode.job.identity import launcher_name
from pytracer.decode.types.journal import Versions
from pytracer.decode.types.snapshot import Job, Process, Snapshot
from pytracer.report import job as r


def build_run(job: Job, clock: RunClock, unread: Sequence[Process] = (), packages: Sequence[str] = ()) -> r.Run:
    """The run as a whole.

    Args:
        job: All processes of one run.
        clock: Its own.
        unread: Suspects of which only a digest was read.
        packages: Installed ones that are the program itself.
    """
    snapshots = [process.snapshot for process in job.processes]
    all_versions = (item.versions for item in (*(p.snapshot for p in job.ranks), *snapshots))
    versions = next((item for item in all_versions if item != Versions()), Versions())
    started = datetime.fromtimestamp(clock.start_wall_ns / 1e9, timezone.utc) if clock.start_wall_ns else None
    root = min(snapshots, key=lambda item: item.created_wall_ns, default=None)
    command = job.launcher.command if job.launcher else root.argv if root else ()
    redacted = job.launcher.redacted if job.launcher else root.counts.get("redacted") if root else None
    sizes = [process.world_size for process in job.processes if process.world_size is not None]
    return r.Run(
        id=", ".join(os.path.basename(os.path.abspath(path)) for path in job.directories or [job.directory]),
        directory=job.directory,
        directories=list(job.directories) or None,
        started=started.isoformat(timespec="milliseconds") if started else None,
        launcher=launcher_name(job.processes),
        command=list(command),
        world_size=max(sizes, default=None),
        hosts=_hosts(snapshots),
        torch=versions.torch,
        cuda=versions.cuda,
        python=versions.python,
        redacted=redacted,
        digests=_digests(job, unread) if job.digests is not None else None,
        program_packages=list(packages) or None,
    )


def _digests(job: Job, unread: Sequence[Process]) -> r.Digests:
    running = {item.snapshot.host: at for item in job.ranks if (at := _ran_at(item)) is not None}
    as_of = datetime.fromtimestamp(max(running.values()) / 1e9, timezone.utc) if running else None
    return r.Digests(
        count=job.digests,
        missing_ranks=list(job.unrecorded_ranks),
        unread=[f"{item.snapshot.host}:{item.snapshot.path}" for item in unread],
        running=sorted(running),
        as_of=as_of.isoformat(timespec="seconds") if as_of else None,
    )


def _ran_at(process: Process) -> int | None:
    """When a process was seen running, by its host's clock."""
    at, snapshot = process.running_mono_ns, process.snapshot
    return snapshot.created_wall_ns + at - snapshot.created_mono_ns if at is not None else None


def _hosts(snapshots: Sequence[Snapshot]) -> list[str]:
    """Their names; containers that share one are distinguished by the boot."""
    boots = {(item.host, item.boot_id) for item in snapshots}
    names = [host for host, _ in boots]
    return sorted(host if names.count(host) == 1 else f"{host} (boot {boot_id[:8]})" for host, boot_id in boots)


def build_damage(job: Job) -> list[r.DamageReport]:
    """What could not be read, of all recordings."""
    found = dict.fromkeys((*job.damage, *(item for process in job.processes for item in process.snapshot.damage)))
    return [r.DamageReport(file=item.file, offset=item.offset, what=item.what) for item in found]


def build_counts(job: Job) -> dict[str, int]:
    """Counters of all recordings added up, plus `records` and `processes`."""
    counts = {"processes": len(job.processes), "records": 0}
    for process in job.processes:
        counts["records"] += len(process.snapshot.events)
        for name, value in process.snapshot.counts.items():
            if name != "records":
                counts[name] = counts.get(name, 0) + value
    return counts
