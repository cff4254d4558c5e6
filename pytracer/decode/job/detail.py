"""Reads the recordings of a large job's few suspects again, in full."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pytracer._errors import InputError
from pytracer.decode.recording.reader import read_box
from pytracer.decode.symbols.stored import SYMBOLS_FILE, read_symbols
from pytracer.decode.symbols.symbolize import symbolize
from pytracer.decode.types.snapshot import Job, Process, Snapshot


def in_full(job: Job, which: Iterable[int]) -> Job:
    """The job with these processes, by their index, read in full; unchanged if their recording is gone by now."""
    processes = list(job.processes)
    snapshots = {i: found for i in which if (found := _read(processes[i].snapshot)) is not None}
    known = read_symbols(Path(job.directory) / SYMBOLS_FILE, [])
    for i, snapshot in zip(snapshots, symbolize(list(snapshots.values()), known), strict=True):
        processes[i] = _with(processes[i], snapshot)
    return replace(job, processes=tuple(processes))


def _read(light: Snapshot) -> Snapshot | None:
    try:
        return read_box(light.path) if light.light else None
    except InputError:
        return None


def _with(process: Process, snapshot: Snapshot) -> Process:
    """What `merge.py` had found out about the crash stays."""
    was = process.snapshot.crash
    if was is None or snapshot.crash is None:
        return replace(process, snapshot=replace(snapshot, crash=None) if was is None else snapshot)
    return replace(process, snapshot=replace(snapshot, crash=replace(snapshot.crash, repaired=was.repaired)))
