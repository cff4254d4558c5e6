"""Processes that a time limit ended while they waited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pytracer.analyze.engine import build_report
from pytracer.decode.types.snapshot import HeldValue, NativeFrame, Process
from pytracer.report.job import Report
from tests.support import scenarios as s
from tests.support.synth import Box, Frame

EXIT = 6  # CrashState
TIMEOUT = ["timeout", "60", "python", "train.py"]


def stopped(
    box: Box, python: Sequence[Frame], native: Sequence[tuple[str, int]] = (), by: Sequence[str] = TIMEOUT
) -> Box:
    """A process that SIGTERM ended below these frames."""
    box.at(60_000).signal_seen(15, 90, by)
    return box.crash(0, code=0, state=EXIT, python=python, native=native or [(s.LIBC, 0x10), (s.PYTHON, 0x20)])


def ended(run: Path, *boxes: Box, by: Sequence[str] = TIMEOUT) -> Report:
    """Below the process that sent the signal."""
    root = Box(pid=90, ppid=80, argv=by).at(60_010).wait(101, signal=15).exit(124)
    return build_report(s.load(run, root, *boxes))


def parent() -> Box:
    return Box(pid=101, ppid=90).versions(torch="2.13.0")


def in_native(run: Path, first: Box, *boxes: Box, native: str, values: Sequence[HeldValue] = ()) -> Report:
    """Process 101, `first`, was in this function of CPython when the time limit ended it; other ranks, too.

    `values`: what its variables had.
    """
    root = Box(pid=90, ppid=80, argv=TIMEOUT).at(60_010).wait(101, signal=15).exit(124)
    job = s.load(run, root, first, *boxes)
    changed = (_in(item, native) if item.snapshot.pid == 101 or item.rank else item for item in job.processes)
    if values:
        changed = (with_ending(item, values=tuple(values)) if item.snapshot.pid == 101 else item for item in changed)
    return build_report(replace(job, processes=tuple(changed)))


def below(run: Path, first: Box, *boxes: Box, native: Sequence[tuple[str, str]]) -> Report:
    """Process 101, `first`, was ended with these native frames, the innermost first: function and image."""
    root = Box(pid=90, ppid=80, argv=TIMEOUT).at(60_010).wait(101, signal=15).exit(124)
    job = s.load(run, root, first, *boxes)
    frames = tuple(NativeFrame(n, image, n, None, "unwound", name) for n, (name, image) in enumerate(native))
    changed = (with_ending(item, native_stack=frames) if item.snapshot.pid == 101 else item for item in job.processes)
    return build_report(replace(job, processes=tuple(changed)))


def with_ending(process: Process, **changes: object) -> Process:
    """With other parts of what was recorded when it was ended."""
    ending = process.snapshot.ending
    assert ending is not None
    return replace(process, snapshot=replace(process.snapshot, ending=replace(ending, **changes)))  # type: ignore[arg-type]


def _in(process: Process, native: str) -> Process:
    ending = process.snapshot.ending
    assert ending is not None
    frames = tuple(replace(frame, function=native) for frame in ending.native_stack)
    return replace(process, snapshot=replace(process.snapshot, ending=replace(ending, native_stack=frames)))
