"""What a pointer holds that was overwritten: numbers of an array that somebody wrote over an object.

Only addresses that no process can have: a pointer that exists may look like a number by chance.
"""

from __future__ import annotations

import math
import struct

from pytracer.analyze.view import ProcessView

_SMALLEST, _LARGEST = 1e-6, 1e6  # what data are, mostly
_LEAST = 1 << 47  # of addresses on x86-64 and aarch64 with 48 bits, those that no program has begin here
_SHOWN = 4  # significant digits


def numbers_in_pointer(view: ProcessView) -> str | None:
    """`two float32 numbers, 1 and 0.9999`, or `the float64 number 0.5`; None for anything else."""
    value = _pointer(view)
    if value is None or value < _LEAST:
        return None
    low, high = struct.unpack("<ff", value.to_bytes(8, "little"))
    if _is_number(low) and _is_number(high):
        return f"two float32 numbers, {low:.{_SHOWN}g} and {high:.{_SHOWN}g}"
    (double,) = struct.unpack("<d", value.to_bytes(8, "little"))
    return f"the float64 number {double:.{_SHOWN}g}" if _is_number(double) else None


def _pointer(view: ProcessView) -> int | None:
    """The register that the instruction used as a base, else the address itself."""
    if view.instruction is not None and view.instruction.base_value is not None:
        return view.instruction.base_value
    return view.place.addr if view.place is not None else None


def _is_number(value: float) -> bool:
    return math.isfinite(value) and _SMALLEST <= abs(value) <= _LARGEST
