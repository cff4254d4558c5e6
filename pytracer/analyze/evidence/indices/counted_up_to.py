"""How far a loop that ran on was to count: what registers still hold of it."""

from __future__ import annotations

from pytracer.analyze.address_space.referrers import STACK_POINTERS, STATE_REGISTERS
from pytracer.analyze.address_space.regions import mapping_at
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Storage

_NO_COUNT = 1 << 40  # no tensor of a process has so many rows


def counted_up_to(view: ProcessView, storage: Storage) -> int | None:
    """The number itself, how much was left of it and where the loop began: three registers, of which two add up.

    The loop began inside of the storage, whatever its elements are, and the number is larger than it has bytes. None
    where several numbers are such a sum, of addresses, and where the number is that of a tensor's elements: as far as a
    loop over these counts. A power of two is a step, or the part of a thread.
    """
    crash = view.crash
    if crash is None:
        return None
    held = {
        value
        for name, value in crash.registers.items()
        if name not in STATE_REGISTERS and name not in STACK_POINTERS and 0 < value < _NO_COUNT
    }
    large = {value for value in held if value > storage.nbytes and mapping_at(crash.mappings, value) is None}
    starts = {value for value in held if value <= storage.nbytes and value & (value - 1)}
    found = {value for value in large if any(value - start in large for start in starts)}
    counts = {item.elements + more for item in crash.arguments for more in (-1, 0, 1)}
    return next(iter(found)) if len(found) == 1 and not found & counts else None
