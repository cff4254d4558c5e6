"""Whether the numbers that a line passes are too small to have led an access as far as it went."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pytracer.analyze.evidence.indices.runs import ran_on
from pytracer.analyze.view import ProcessView

_BESIDE = ("past-storage", "before-storage")
_LARGEST_ELEMENT = 16  # complex128


def are_too_small(view: ProcessView, values: Iterable[int], bases: Iterable[int]) -> bool:
    """Whether even all of them multiplied, in elements of the largest type, end before the address.

    Args:
        view: The process; its access was before or behind memory, or ran on through it.
        values: Of the numbers.
        bases: Where the memory begins that the line passes. Without it, and without a storage at the address, nothing
            is known.
    """
    place, numbers = view.place, list(values)
    if place is None or not numbers or min(numbers) < 0:
        return False
    if place.kind not in _BESIDE and place.overrun is None and ran_on(view) is None:
        return False
    starts = [base for base in (*bases, place.storage.base if place.storage is not None else 0) if base]
    if not starts:
        return False
    nearest = min(abs(place.addr - start) for start in starts)
    return math.prod(value for value in numbers if value) * _LARGEST_ELEMENT < nearest
