"""Names and holders for the black boxes of `synth.py`, packed from their own literals."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tests.support.synth import Box

MODULE, PARAMETER, BUFFER, STATE, USER = 1, 2, 3, 4, 5
LOCAL, CELL, GLOBAL, SAVED, NUMBER = 1, 2, 3, 4, 5
_FLOATS = (5, 6, 7, 8, 9, 10, 15)  # c10::ScalarType
_STEPS_DONE_AT, _HOLDERS_AT, _ARGUMENTS_AT = 40, 936, 948


class NameTree:
    """Slots of the region NAMES, in order; their numbers count from 1."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._slots: list[bytes] = []

    def add(
        self,
        role: int,
        text: str,
        parent: int = 0,
        *,
        flags: int = 0,
        at: tuple[int, int] = (0, 0),
        epoch: int = 0,
        grad: int = 0,
        earlier: int = 0,
        earlier_epoch: int = 0,
    ) -> int:
        """`at`: address and size of a tensor that begins its storage; `grad`, `earlier`: addresses."""
        name = self._box.entry(50, text.encode())
        addr, nbytes = at
        epoch = epoch or self._box.epoch
        slot = struct.pack("<4I", role, name, parent, flags) + struct.pack("<3Q", 0x1000, 0x2000, 0x3000)
        slot += struct.pack("<9Q", addr, nbytes, addr, grad, grad, earlier, earlier, 0, 0)
        slot += struct.pack("<6I", epoch if addr else 0, epoch if grad else 0, earlier_epoch, 0, 4, 0)
        assert len(slot) == 136
        self._slots.append(slot)
        return len(self._slots)

    def write(self) -> None:
        """Puts the slots into the recording, with room for more."""
        self._box.guard_regions[44] = (136, b"".join(self._slots).ljust(136 * 1024, b"\0"))


def add_holders(box: Box, holders: Sequence[tuple[int, str, int, int]]) -> Box:
    """After `crash`: (kind, text, base, frame or distance); the steps NAMES and HOLDERS were done."""
    head = bytearray(box.crash_regions[16][1])
    arena = bytearray(box.crash_regions[23][1])
    items = b""
    for kind, text, base, number in holders:
        frame, distance = (0, number) if kind == SAVED else (number, 0)
        items += struct.pack("<IIQQIIQII", kind, frame, base, 0x9000, len(arena), len(text), 0, distance, 0)
        arena += text.encode()
    (done,) = struct.unpack_from("<I", head, _STEPS_DONE_AT)
    struct.pack_into("<I", head, _STEPS_DONE_AT, done | 3 << 13)
    struct.pack_into("<II", head, _HOLDERS_AT, len(holders), 0)
    box.crash_regions |= {16: (1024, bytes(head)), 23: (1, bytes(arena)), 45: (48, items)}
    return box


def add_arguments(box: Box, arguments: Sequence[tuple[int, int, tuple[int, ...], tuple[int, int] | None]]) -> Box:
    """After `crash`: (base, number of the dtype, sizes, values) of tensors on the stack of frame 0.

    Values: minimum and maximum; of a type of floats how many are NaN, and whether one is infinite.
    """
    head = bytearray(box.crash_regions[16][1])
    items = b""
    for base, dtype, sizes, values in arguments:
        elements = 1
        for size in sizes:
            elements *= size
        kept = (*sizes, *[0] * 8)[:8]
        items += struct.pack("<5Q", base ^ 0x10, 0x7FFE_0000, base, elements, 0) + struct.pack("<8q8q", *kept, *kept)
        not_numbers = values[0] + 1 | values[1] << 31 if values is not None and dtype in _FLOATS else 0
        known = values if values is not None and dtype not in _FLOATS else None
        items += struct.pack("<2q", *(known or (0, 0)))
        items += struct.pack("<10I", 0, 0xFFFFFFFF, 2, dtype, len(sizes), 0, 0, known is not None, 0, not_numbers)
    (done,) = struct.unpack_from("<I", head, _STEPS_DONE_AT)
    struct.pack_into("<I", head, _STEPS_DONE_AT, done | 1 << 15)
    struct.pack_into("<II", head, _ARGUMENTS_AT, len(arguments), 0)
    box.crash_regions |= {16: (1024, bytes(head)), 46: (224, items)}
    return box
