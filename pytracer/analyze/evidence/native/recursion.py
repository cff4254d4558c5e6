"""Does a stack repeat itself? The cycle of frames that ran it over."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

LONGEST_CYCLE = 24
REPEATS = 3

Frame = TypeVar("Frame")


@dataclass(frozen=True)
class Cycle(Generic[Frame]):
    """`frames` repeat, innermost first, from `start` on; `repeats` times among the frames that were kept."""

    frames: tuple[Frame, ...]
    start: int
    repeats: int


def find_cycle(frames: Sequence[Frame], keys: Sequence[Hashable]) -> Cycle[Frame] | None:
    """The cycle that covers most of a stack.

    Args:
        frames: The stack, innermost first, without a gap.
        keys: For each frame what makes it equal to another one.

    Returns:
        The cycle with its shortest period; None when nothing repeats `REPEATS` times in a row.
    """
    best: tuple[int, int, int] | None = None  # length of the repeating part, minus the period, start
    for period in range(1, min(LONGEST_CYCLE, len(keys) // REPEATS) + 1):
        start, length = _longest_run(keys, period)
        if length >= period * REPEATS and (best is None or (length, -period) > best[:2]):
            best = (length, -period, start)
    if best is None:
        return None
    length, period, start = best[0], -best[1], best[2]
    return Cycle(tuple(frames[start : start + period]), start, length // period)


def _longest_run(keys: Sequence[Hashable], period: int) -> tuple[int, int]:
    """Where the longest part begins in which every frame equals the one `period` later, and how long it is."""
    best_start, best_length, start = 0, 0, 0
    for position in range(len(keys) - period + 1):
        if position + period < len(keys) and keys[position] == keys[position + period]:
            continue
        length = position - start + period
        if length > best_length:
            best_start, best_length = start, length
        start = position + 1
    return best_start, best_length
