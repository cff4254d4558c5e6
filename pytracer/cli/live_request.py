"""Stacks of running processes from their own recorders, requested by a queued signal.

The answer takes some milliseconds and needs no other tool. A process without the recorder would die of that signal, so
it is sent only to one that has this very file mapped, catches the signal, and is recording.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pytracer._errors import InputError
from pytracer.analyze.assemble.threads import Threads
from pytracer.blackbox import structures as raw
from pytracer.blackbox.codec import decode
from pytracer.blackbox.schema import FILE_HEADER, MAGIC, REQUEST_SIGNAL, REQUEST_VALUE, State
from pytracer.cli.live_identity import Recorder
from pytracer.decode.files import read_all, regular_file
from pytracer.decode.recording.reader import read_box
from pytracer.decode.symbols.symbolize import symbolize
from pytracer.decode.types.snapshot import Snapshot
from pytracer.launcher.run_directory import start_ticks
from pytracer.report.job import ThreadReport
from pytracer.report.live import LiveFrame, LiveProcess, LiveThread

_SECONDS = 2.0
_BY = "black box"
Asked = Sequence[tuple[LiveProcess, Snapshot]]


def request_stacks(processes: Asked, *, native: bool) -> None:
    """Fills the threads of each process that answers; the others are left unchanged.

    Args:
        processes: each with its recording.
        native: also native frames, whose names take a second to look up.
    """
    answered, silent = ask([snapshot for _, snapshot in processes], _SECONDS)
    _read([(process, snapshot) for process, snapshot in processes if snapshot.pid in answered], native)
    for process, snapshot in processes:
        if snapshot.pid in silent:
            process.notes.append(f"it did not answer the request for its stacks within {_SECONDS:.0f} s")


def ask(snapshots: Sequence[Snapshot], seconds: float) -> tuple[set[int], set[int]]:
    """Has running processes write their stacks into their recordings.

    Returns:
        The pids of those that did, and of those that were asked and did not within `seconds`.
    """
    silent: dict[int, tuple[Snapshot, int]] = {}
    for snapshot in snapshots:
        before = _answers(snapshot)
        if before is not None and _ask(snapshot):
            silent[snapshot.pid] = (snapshot, before)
    until = time.monotonic() + seconds
    answered: set[int] = set()
    while silent and time.monotonic() < until:
        for pid, (snapshot, before) in list(silent.items()):
            if (_answers(snapshot) or 0) > before:
                del silent[pid]
                answered.add(pid)
        time.sleep(0.01)
    return answered, set(silent)


def _read(answered: Asked, native: bool) -> None:
    boxes = []
    for process, old in answered:
        try:
            box = read_box(old.path)
        except InputError:
            continue
        if box.live is not None:
            boxes.append((process, replace(box, crash=box.live, live=None)))
    snapshots = [box for _, box in boxes]
    for (process, _), box in zip(boxes, symbolize(snapshots) if native else snapshots, strict=True):
        process.stacks_by = _BY
        _fill(process, Threads(box, box.crash).reports(), native)


def _fill(process: LiveProcess, reports: Sequence[ThreadReport], native: bool) -> None:
    known = {thread.tid: thread for thread in process.threads}
    for report in reports:
        thread = known.get(report.tid or 0)
        if thread is None:
            if report.tid is None:
                continue
            thread = LiveThread(report.tid, report.name)
            process.threads.append(thread)
        thread.python_stack = [LiveFrame(item.function, item.file, item.line) for item in report.python_stack or []]
        if native:
            thread.native_stack = [LiveFrame(item.function, image=item.image) for item in report.native_stack or []]


def _ask(snapshot: Snapshot) -> bool:
    try:
        with Recorder(snapshot.pid) as recorder:
            may = recorder.writes(snapshot.path) and _catches(snapshot)
            return may and recorder.queue(REQUEST_SIGNAL, REQUEST_VALUE)
    except OSError:
        return False


def _catches(snapshot: Snapshot) -> bool:
    """Whether it is still recording, and has the recorder's handler for requests."""
    header = _header(snapshot)
    if header is None or header.state != State.RECORDING or start_ticks(snapshot.pid) != snapshot.start_ticks:
        return False
    try:
        status = Path(f"/proc/{snapshot.pid}/status").read_text(encoding="utf-8", errors="replace")
        caught = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return False
    return bool(caught >> (REQUEST_SIGNAL - 1) & 1)


def _answers(snapshot: Snapshot) -> int | None:
    header = _header(snapshot)
    return header.live_reports if header is not None else None


def _header(snapshot: Snapshot) -> raw.FileHeader | None:
    try:
        with regular_file(snapshot.path) as file:
            data = read_all(file, FILE_HEADER.nbytes)
    except OSError:
        return None
    whole = len(data) == FILE_HEADER.nbytes and data.startswith(MAGIC)
    return decode(raw.FileHeader, data) if whole else None
