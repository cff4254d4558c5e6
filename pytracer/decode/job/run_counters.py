"""`counters.<host>` of a run directory: the number of processes, and those that could not be recorded.

The file is that of csrc/crashsafe/file/run_counters.h. Every process of the job may forge it: it is read once, as a
whole, and used only for text.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytracer.blackbox.run_counters import NBYTES, PREFIX, SeenProcess, unpack
from pytracer.decode.files import read_regular
from pytracer.decode.types.snapshot import Damage

_MOST_FILES = 256

# In the order of enum Unrecorded; used in "3 processes were not recorded: ...".
_REASONS = (
    "the run directory was gone",
    "they were not allowed to write there",
    "no room on the disk, or a limit on the size of files",
    "the budget of black boxes was used up (PYTRACER_MOST_BOXES)",
    "a forked child got no memory of its own",
    "another error",
)


@dataclass(frozen=True)
class RunCounters:
    """The counts of one host. `unrecorded`: (why, how many), without those that are 0."""

    file: str
    host: str
    processes: int
    boxes: int
    box_bytes: int
    unrecorded: tuple[tuple[str, int], ...]
    seen: tuple[SeenProcess, ...]

    @property
    def line(self) -> str | None:
        """What was not recorded, in a sentence; None when nothing was missed."""
        if not self.unrecorded:
            return None
        count = sum(number for _, number in self.unrecorded)
        what = "a process was" if count == 1 else f"{count} processes were"
        whys = "; ".join(why if len(self.unrecorded) == 1 else f"{number}: {why}" for why, number in self.unrecorded)
        return f"{what} not recorded ({whys})"


def read_run_counters(directory: Path) -> list[RunCounters]:
    """The counts of all hosts of a run, by name of the host; what is no such file is left out."""
    try:
        names = sorted(name for name in os.listdir(directory) if name.startswith(PREFIX))[:_MOST_FILES]
    except OSError:
        return []
    found = (_read(directory / name) for name in names)
    return [counters for counters in found if counters is not None]


def unrecorded(counters: Sequence[RunCounters]) -> list[Damage]:
    """What the run is missing, as the reader's other gaps."""
    return [Damage(item.file, 0, item.line) for item in counters if item.line is not None]


def _read(path: Path) -> RunCounters | None:
    try:
        data = read_regular(path, NBYTES)
    except OSError:
        return None
    found = unpack(data)
    if found is None:
        return None
    counts, seen = found
    missed = tuple((why, number) for why, number in zip(_REASONS, counts.unrecorded, strict=True) if number)
    host = path.name.removeprefix(PREFIX).partition(":")[0]  # behind it the task, if each has counters of its own
    return RunCounters(path.name, host, counts.processes, counts.boxes, counts.box_bytes, missed, tuple(seen))
