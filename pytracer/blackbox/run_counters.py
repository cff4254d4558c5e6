"""`counters.<host>` of a run directory (csrc/crashsafe/file/run_counters.h): counts that all processes share.

Every process of the job may write anything into the file: sizes are checked, nothing is believed.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

PREFIX = "counters."
MAGIC = b"pytrcnt1"
HEAD = struct.Struct("<8sIIQI6I12x")
SEEN = struct.Struct("<iiQ16s")
NBYTES = 65536


class SeenProcess(NamedTuple):
    """A process that ran with the core, recorded or not; `name` from the kernel, 15 bytes at most."""

    pid: int
    ppid: int
    started_mono_ns: int
    name: str


class Counts(NamedTuple):
    """The head. `unrecorded`: by number of enum Unrecorded."""

    processes: int
    boxes: int
    box_bytes: int
    unrecorded: tuple[int, ...]


def unpack(data: bytes) -> tuple[Counts, list[SeenProcess]] | None:
    """The contents of the file's bytes; None if they are of another kind."""
    if len(data) != NBYTES or not data.startswith(MAGIC):
        return None
    _, processes, boxes, box_bytes, _, *unrecorded = HEAD.unpack_from(data)
    seen = [
        SeenProcess(pid, ppid, started, name.split(b"\0")[0].decode("utf-8", "replace"))
        for pid, ppid, started, name in SEEN.iter_unpack(data[HEAD.size :])
        if pid > 0
    ]
    return Counts(processes, boxes, box_bytes, tuple(unrecorded)), seen
