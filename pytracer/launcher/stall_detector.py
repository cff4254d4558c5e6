"""Detects a hang: the counters at the head of each recording, read from outside, have not changed.

Stores into a mapped file do not change its modification time, so the counters themselves are compared.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from pytracer.blackbox import codec, schema
from pytracer.launcher.run_directory import BOX_SUFFIX

_MOST_BYTES = 1 << 20
TIMES = 10
_START_SECONDS = 60.0  # importing torch on a busy machine


class StallDetector:
    """Detects that no process of a run records anything.

    Before the first step or collective the limit is at least a minute: importing torch records nothing.

    Args:
        boxes: the folder of the recordings.
        seconds: the limit.
        grows: the limit is at least `TIMES` the longest pause that ended by itself.
        speed: how many seconds of the limit pass in a second.
    """

    def __init__(self, boxes: Path, seconds: float, *, grows: bool = False, speed: float = 1.0) -> None:
        self._boxes = boxes
        self._seconds = seconds
        self._seen: dict[str, int] = {}
        self._since = time.monotonic() * speed
        self._reported = False
        self._begun = False
        self._grows, self._speed = grows, speed
        self._longest = 0.0
        self._looked_at = self._moved_after = self._since  # the last look; the one before the change was seen
        self._patience = 1

    def stalled(self) -> bool:
        """True once for each stall that reaches the limit."""
        seen = self._marks()
        now = time.monotonic() * self._speed
        if seen != self._seen:
            if self._begun and self._grows:  # as long as it can have been: looks are seldom
                self._longest = max(self._longest, now - self._moved_after)
            self._moved_after, self._looked_at = self._looked_at, now
            self._seen, self._since, self._reported, self._patience = seen, now, False, 1
            return False
        self._looked_at = now
        limit = max(self._seconds, TIMES * self._longest) * self._patience
        if not self._begun:
            limit = max(limit, _START_SECONDS)
        if self._reported or not seen or now - self._since < limit:
            return False
        self._reported = True
        return True

    @property
    def seconds(self) -> float:
        """How long nothing has changed."""
        return time.monotonic() * self._speed - self._since

    def wait_longer(self) -> None:
        """This stall is reported when it has lasted `TIMES` as long as would do otherwise."""
        self._reported, self._patience = False, TIMES

    def _marks(self) -> dict[str, int]:
        try:
            names = [name for name in os.listdir(self._boxes) if name.endswith(BOX_SUFFIX)]
        except OSError:
            return {}
        return {name: self._mark(self._boxes / name) for name in names}

    def _mark(self, path: Path) -> int:
        found = counters(path)
        if not self._begun and len(found) >= schema.FILE_HEADER.nbytes:
            number = codec.layout(schema.FILE_HEADER).number
            made = (
                number("state", found) != schema.State.CREATING
            )  # while CREATING, all counters are zero, also the step
            self._begun = made and (number("collectives", found) > 0 or number("step", found) >= 0)
        return hash(found)


def counters(path: Path) -> bytes:
    """The bytes that every record changes: header and thread contexts; b"" if they cannot be read."""
    entry = codec.layout(schema.REGION_ENTRY)
    try:
        with open(path, "rb", buffering=0) as file:
            head = file.read(schema.HEADER_BYTES)
            parts = [_without_reports(head[: schema.FILE_HEADER.nbytes])]
            for number in range(schema.REGION_LIMIT):
                at = schema.FILE_HEADER.nbytes + number * entry.nbytes
                if at + entry.nbytes > len(head):
                    break
                if entry.number("kind", head, at) == schema.Region.THREADS:
                    nbytes, offset = entry.number("nbytes", head, at), entry.number("offset", head, at)
                    parts.append(os.pread(file.fileno(), min(nbytes, _MOST_BYTES), offset))
    except (OSError, ValueError, OverflowError):
        return b""
    return b"".join(parts)


def _without_reports(header: bytes) -> bytes:
    """Without the count of answered `pytracer attach` requests, which are no progress."""
    at = codec.layout(schema.FILE_HEADER).offsets["live_reports"]
    return header[:at] + bytes(8) + header[at + 8 :]
