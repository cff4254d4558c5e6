"""Reads the recordings of a large job's few suspects again, in full."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from pytracer._errors import InputError, PytracerError
from pytracer._objects import is_url, joined, read_whole
from pytracer.decode.job.flight_recorder import carried_over
from pytracer.decode.recording.reader import read_box
from pytracer.decode.symbols.stored import SYMBOLS_FILE, read_symbols
from pytracer.decode.symbols.symbolize import symbolize
from pytracer.decode.types.snapshot import Job, Process, Snapshot

_LARGEST = 1 << 30  # bytes of a recording that is fetched


def in_full(job: Job, which: Iterable[int]) -> Job:
    """The job with these processes, by their index, read in full; unchanged if their recording is gone by now."""
    processes = list(job.processes)
    snapshots = {i: found for i in which if (found := _read(processes[i].snapshot, job)) is not None}
    known = read_symbols(Path(job.directory) / SYMBOLS_FILE, [])
    for i, snapshot in zip(snapshots, symbolize(list(snapshots.values()), known), strict=True):
        if job.flight:
            snapshot = carried_over(processes[i].snapshot, snapshot)
        processes[i] = _with(processes[i], snapshot)
    return replace(job, processes=tuple(processes))


def _read(light: Snapshot, job: Job) -> Snapshot | None:
    if not light.light:
        return None
    if job.digests is None:
        with contextlib.suppress(InputError):
            return read_box(light.path)
        return None
    for place in _places(light, job.recordings):
        with contextlib.suppress(PytracerError, OSError), _local(place) as path:
            found = read_box(path)
            # The path may be that of another machine.
            if _identity(found) == _identity(light):
                return replace(found, path=light.path)
    return None


def _identity(snapshot: Snapshot) -> tuple[object, ...]:
    return snapshot.host, snapshot.boot_id, snapshot.pid, snapshot.start_ticks, snapshot.created_mono_ns


def _places(light: Snapshot, folders: Iterable[str]) -> Iterator[str]:
    """Where the recording may be: its own path, and by its name in the given folders and their run directories."""
    yield light.path
    name = os.path.basename(light.path)
    run = os.path.basename(os.path.dirname(os.path.dirname(light.path)))
    for folder in folders:
        for parts in ((name,), ("boxes", name), (run, "boxes", name), (light.host, "boxes", name), (light.host, name)):
            yield joined(folder, "/".join(parts))


@contextlib.contextmanager
def _local(place: str) -> Iterator[str]:
    """The file, fetched if it is behind a URL."""
    if not is_url(place):
        yield place
        return
    with tempfile.TemporaryDirectory(prefix="pytracer-") as directory:
        path = os.path.join(directory, os.path.basename(place))
        Path(path).write_bytes(read_whole(place, _LARGEST))
        yield path


def _with(process: Process, snapshot: Snapshot) -> Process:
    """What `merge.py` had found out about the crash stays."""
    was = process.snapshot.crash
    if was is None or snapshot.crash is None:
        return replace(process, snapshot=replace(snapshot, crash=None) if was is None else snapshot)
    return replace(process, snapshot=replace(snapshot, crash=replace(snapshot.crash, repaired=was.repaired)))
