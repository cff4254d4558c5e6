"""Everything that is known about one job: run directories, and dumps of torch's Flight Recorder.

The agents of a job on several hosts may each have a run directory of their own, or share one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from pytracer._errors import InputError
from pytracer.decode.formats.flight_recorder import find_dumps, read_dumps
from pytracer.decode.job.flight_recorder import add_dumps
from pytracer.decode.job.identity import job_keys
from pytracer.decode.job.merge import Progress, load_job
from pytracer.decode.job.unpacked import run_directory_of
from pytracer.decode.types.snapshot import Damage, Job, Process

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def load_runs(
    paths: Paths, dumps: Sequence[Path] = (), progress: Progress | None = None, *, light: bool = False
) -> Job:
    """Reads the recordings of one job, from one run directory or several, and its Flight Recorder dumps.

    Args:
        paths: run directories, directories with `*.blackbox` files, bundles, or single files. Dumps with torch's
            names in them are read, too.
        dumps: more dumps, or directories of them.
        progress: called with (files read, files in all) for each path.
        light: read a large job partially, see `load_job`; in full if there are dumps to compare.

    Raises:
        InputError: as `load_job`; one of the `dumps` does not exist; or the paths hold different jobs.
    """
    named = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    named_dumps = dumps_in(dumps)
    given = [run_directory_of(path) for path in named]
    files = dict.fromkeys([*named_dumps, *find_dumps([Path(path) for path in given if os.path.isdir(path)])])
    light = light and not files
    job = joined([(os.fspath(path), load_job(path, progress, light=light)) for path in given])
    return with_dumps(job, files)


def dumps_in(paths: Sequence[Path]) -> list[Path]:
    """The files of Flight Recorder dumps, or of directories of them.

    Raises:
        InputError: one of the paths does not exist.
    """
    for path in paths:
        if not path.exists():
            raise InputError(f"there is no {path}", "name a Flight Recorder dump, or a directory that holds some")
    return find_dumps(paths)


def with_dumps(job: Job, files: Iterable[Path]) -> Job:
    """The job with the evidence of these dumps."""
    damage: list[Damage] = []
    read = read_dumps(files, damage)
    job, uses = add_dumps(job, read)
    return replace(job, damage=(*job.damage, *damage), flight=uses) if read or damage else job


def joined(jobs: Sequence[tuple[str, Job]]) -> Job:
    """Several directories as one job. A recording in two of them counts once, as in the first of these."""
    first = jobs[0][1]
    if len(jobs) == 1:
        return first
    _refuse_strangers(jobs)
    found: dict[tuple[object, ...], Process] = {}
    for _, job in jobs:
        for process in job.processes:
            box = process.snapshot
            found.setdefault((box.host, box.boot_id, box.pid, box.start_ticks, box.created_mono_ns), process)
    processes = sorted(found.values(), key=lambda p: (p.snapshot.created_wall_ns, p.snapshot.pid))
    damage = dict.fromkeys(item for _, job in jobs for item in job.damage)
    cores = tuple(core for _, job in jobs for core in job.gpu_cores)
    directories = tuple(dict.fromkeys(job.directory for _, job in jobs))
    records = (item for _, job in jobs for item in job.launchers)
    launchers = {(item.host, item.boot_id, item.pid, item.started_mono_ns): item for item in records}
    return replace(
        first,
        processes=tuple(processes),
        damage=tuple(damage),
        gpu_cores=cores,
        directories=directories if len(directories) > 1 else (),
        more_launchers=tuple(item for item in launchers.values() if item is not first.launcher),
    )


def _refuse_strangers(jobs: Sequence[tuple[str, Job]]) -> None:
    """Directories with different job names are not merged."""
    named = [(path, frozenset(k for p in job.ranks for k in job_keys(p.snapshot.environment))) for path, job in jobs]
    told = [(path, keys) for path, keys in named if keys]
    for path, keys in told[1:]:
        if not keys & told[0][1]:
            words = f"{told[0][0]} is of {min(told[0][1])}, {path} of {min(keys)}"
            raise InputError(f"these are different jobs: {words}", "inspect them one by one")
