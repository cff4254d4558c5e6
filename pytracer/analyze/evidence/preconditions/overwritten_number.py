"""A number that is no index, where a call that had returned may have written over what it was read from.

The kernel that dies of it is one of the next calls, and only its victim: unfit-arguments says which call it was.
"""

from __future__ import annotations

from pytracer.analyze.evidence.preconditions.violated import violated_before
from pytracer.analyze.view import ProcessView

NO_INDEX = 1 << 47  # so large is what was a pointer, or two other numbers


def is_overwritten(view: ProcessView, index: int) -> bool:
    """Whether what led out of a tensor is such a number, and an unchecked argument of an earlier call did not fit."""
    return abs(index) >= NO_INDEX and violated_before(view) is not None
