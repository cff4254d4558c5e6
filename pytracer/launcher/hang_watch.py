"""When is a running job worth a look? Open collectives and counters of the recordings, read from outside.

Reading all recordings takes a good part of a second, so another process does that, and only when a collective has been
open for `OPEN_SECONDS` in the same state. What is read here are a few hundred bytes of each recording every two
seconds. Nothing here raises.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pytracer.blackbox import codec, schema
from pytracer.launcher.run_directory import BOX_SUFFIX

OPEN_SECONDS = 7.0  # a rank that ended, or an open collective, may be the beginning of an ordinary end
_LAST = 64  # collectives of a process that may still be open
_OPEN = (schema.CollectiveState.SCHEDULED, schema.CollectiveState.STARTED)
_TICK = os.sysconf("SC_CLK_TCK")
_BUSY_SHARE = 0.05  # of a processor
_BUSY_BYTES = 1 << 20


@dataclass
class _Box:
    """What is known of a recording."""

    collectives: int = 0
    ring: tuple[int, int] | None = None  # offset, slots
    open: tuple[tuple[int, int], ...] = ()  # number and time of each open collective


class HangWatch:
    """Says when an analysis is due, and which processes are at work meanwhile."""

    def __init__(self, boxes: Path, ended: Callable[[float], frozenset[tuple[int, int]]]) -> None:
        """`ended`: pids and start times of the processes that ended at least so many seconds ago."""
        self._boxes = boxes
        self._ended = ended
        self._known: dict[str, _Box] = {}
        self._looked: object = None

    def due(self) -> bool:
        """True once for each state in which a collective has been open for long enough."""
        stands: list[object] = []
        since = time.monotonic_ns() - int(OPEN_SECONDS * 1e9)
        with contextlib.suppress(OSError):
            for name in os.listdir(self._boxes):
                if name.endswith(BOX_SUFFIX):
                    with contextlib.suppress(OSError, ValueError, OverflowError):
                        box = self._read(name)
                        stands += [(name, number) for number, began in box.open if began <= since]
        if not stands:
            return False
        state = (frozenset(stands), self._ended(OPEN_SECONDS))
        if state == self._looked:
            return False
        self._looked = state
        return True

    def _read(self, name: str) -> _Box:
        box = self._known.setdefault(name, _Box())
        header = codec.layout(schema.FILE_HEADER)
        with open(self._boxes / name, "rb", buffering=0) as file:
            head = file.read(header.nbytes)
            if len(head) < header.nbytes or header.number("state", head) == schema.State.CREATING:
                return box
            count = header.number("collectives", head)
            moves, box.collectives = count != box.collectives, count
            if not count or moves or header.number("state", head) != schema.State.RECORDING:
                box.open = ()
                return box
            box.ring = box.ring or _ring(os.pread(file.fileno(), schema.HEADER_BYTES, 0))
            box.open = tuple(_open_ones(file.fileno(), *box.ring, count)) if box.ring is not None else ()
        return box

    def waits(self, pid: int) -> bool:
        """Whether the process is in a collective, by its recording."""
        return any(box.open for name, box in self._known.items() if f".{pid}." in name)


def _ring(head: bytes) -> tuple[int, int] | None:
    entry = codec.layout(schema.REGION_ENTRY)
    for number in range(schema.REGION_LIMIT):
        at = schema.FILE_HEADER.nbytes + number * entry.nbytes
        if at + entry.nbytes > len(head):
            break
        if entry.number("kind", head, at) == schema.Region.COLLECTIVES:
            slots = entry.number("nbytes", head, at) // schema.COLLECTIVE_SLOT.nbytes
            return (entry.number("offset", head, at), slots) if slots else None
    return None


def _open_ones(descriptor: int, offset: int, slots: int, count: int) -> Iterable[tuple[int, int]]:
    """Number and time of the open ones among the last collectives."""
    slot = codec.layout(schema.COLLECTIVE_SLOT)
    first = max(0, count - min(_LAST, slots))
    runs = [(first % slots, count - first)]
    if runs[0][0] + runs[0][1] > slots:
        runs = [(runs[0][0], slots - runs[0][0]), (0, runs[0][1] - (slots - runs[0][0]))]
    for start, length in runs:
        data = os.pread(descriptor, length * slot.nbytes, offset + start * slot.nbytes)
        for at in range(0, len(data) - slot.nbytes + 1, slot.nbytes):
            if slot.number("order", data, at) and slot.number("state", data, at) in _OPEN:
                yield slot.number("number", data, at), slot.number("scheduled_ns", data, at)


@dataclass(frozen=True)
class _Work:
    """What a process has done so far."""

    mono: float
    seconds: float
    nbytes: int


class Work:
    """Whether any process of a set works, though it records nothing: it computes, reads or writes."""

    def __init__(self) -> None:
        self._before: dict[int, _Work] = {}

    def restart(self) -> None:
        """The next look is the first one."""
        self._before = {}

    def busy(self, pids: Iterable[int]) -> bool | None:
        """Since the last call with these processes; None at the first one."""
        now = {pid: work for pid in pids if (work := _work(pid)) is not None}
        before, self._before = self._before, now
        both = [(before[pid], work) for pid, work in now.items() if pid in before]
        if not both:
            return None if not before else False
        return any(
            new.seconds - old.seconds > _BUSY_SHARE * (new.mono - old.mono) or new.nbytes - old.nbytes > _BUSY_BYTES
            for old, new in both
        )


def _work(pid: int) -> _Work | None:
    try:
        words = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        seconds = (int(words[11]) + int(words[12])) / _TICK
    except (OSError, ValueError, IndexError):
        return None
    nbytes = 0
    with contextlib.suppress(OSError, ValueError):  # no permission in some containers
        for line in Path(f"/proc/{pid}/io").read_text(errors="replace").splitlines()[:2]:
            nbytes += int(line.split()[1])
    return _Work(time.monotonic(), seconds, nbytes)
