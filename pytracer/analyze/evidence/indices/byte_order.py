"""Whole numbers whose bytes were read in the other order: 7 becomes 504403158265495552 in 64 bits."""

from __future__ import annotations

from pytracer.decode.types.snapshot import Argument

_WIDTHS = {"int64": 8, "int32": 4}
_MOST = {4: 1 << 16, 8: 1 << 24}  # so much at most; larger numbers are not told from others
_HALF = 1 << 32
_LEAST = 1 << 16


def reversed_number(number: int) -> int | None:
    """What it is with its 4 or 8 bytes reversed, where that is small and the number itself is not; None otherwise."""
    return _reversed(number, 4 if -_HALF // 2 <= number < _HALF else 8)


def is_power(number: int) -> bool:
    """Of two: programs use them as limits, and the processor for floats that are no number."""
    return abs(number) & (abs(number) - 1) == 0


def reversed_range(item: Argument | None) -> tuple[int, int] | None:
    """The smallest and largest element of a tensor, as the two recorded ones are with their bytes reversed."""
    if item is None or item.minimum is None or item.maximum is None:
        return None
    width, ends = _WIDTHS.get(item.dtype or ""), {item.minimum, item.maximum}
    if width is None or all(is_power(end) for end in ends) or len(ends) == 1:
        return None
    small = [found for end in ends if (found := _reversed(end, width)) is not None]
    return (min(small), max(small)) if len(small) == len(ends) else None


def _reversed(number: int, width: int) -> int | None:
    if abs(number) < _LEAST:
        return None
    found = int.from_bytes((number % (1 << (8 * width))).to_bytes(width, "little"), "big")
    return found if 0 < found < _MOST[width] else None
