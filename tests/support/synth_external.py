"""External allocations of a recording that is built by hand, packed from its own literals."""

from __future__ import annotations

import struct

from tests.support.synth import Box

SLOTS, SLOT_BYTES, REGION = 4096, 256, 8
STATES = {"busy": 1, "live": 2, "freed": 3}


def foreign(box: Box, *storages: bytes) -> Box:
    """Gives the recording a FOREIGN region with these slots; the rest was never used."""
    box.guard_regions[REGION] = (SLOT_BYTES, b"".join(storages).ljust(SLOTS * SLOT_BYTES, b"\0"))
    return box


def slot(
    base: int,
    nbytes: int,
    origin: int,
    state: str = "live",
    *,
    file: str = "",
    offset: int = 0,
    flags: int = 0,
    epochs: tuple[int, int] = (1, 1),
    number: int = 1,
) -> bytes:
    """One slot; `epochs` are those of the allocation and the end."""
    life = struct.pack("<QQIHHIIII", base, nbytes, 0, 0, 0, 0, 0, 0, 0)
    life += struct.pack("<IIIIII", epochs[0], number, epochs[1], number, origin, number)
    return struct.pack("<II64sQQII160s", STATES[state], 1, life, 0, offset, flags, 0, file.encode())
