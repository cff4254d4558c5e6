"""The address of a tensor that lost its upper 32 bits: passed as a C int, such as by ctypes without argtypes."""

from __future__ import annotations

from dataclasses import dataclass

from pytracer.analyze.address_space.referrers import STATE_REGISTERS
from pytracer.analyze.platform.instruction import signed
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Storage

_HALF = 1 << 32
_LEAST = 1 << 20  # below, a number may be anything
_NEAR_BYTES = 4096  # where a function begins to read


@dataclass(frozen=True)
class TruncatedAddress:
    """`register` held `value`: the lower half of where `storage` begins, with or without its sign."""

    register: str
    value: int
    storage: Storage


def truncated_address(view: ProcessView) -> TruncatedAddress | None:
    """None where no register near the fault address holds half of a live storage's address."""
    crash, place = view.crash, view.place
    if crash is None or place is None or not _is_half(place.addr):
        return None
    near = {
        value % _HALF: (name, value)
        for name, value in crash.registers.items()
        if name not in STATE_REGISTERS and _is_half(value) and abs(signed(place.addr - value)) < _NEAR_BYTES
    }
    if not near:
        return None
    for storage in view.process.snapshot.storages.by_size():
        if storage.state == "live" and storage.base >= _HALF and (found := near.get(storage.base % _HALF)) is not None:
            return TruncatedAddress(*found, storage)
    return None


def _is_half(value: int) -> bool:
    """Whether a number fits into 32 bits, or is negative and does."""
    number = signed(value)
    return abs(number) >= _LEAST and -(_HALF >> 1) <= number < _HALF
