"""An expanded tensor that native code counted as a row of numbers, on into memory that had been freed.

Its few bytes lie in the heap, below what was freed at its end: the same access ends there, behind the heap, or near
another storage, by chance of the layout.
"""

from __future__ import annotations

from pytracer.analyze.evidence.own_code.expanded import Expanded, expanded_behind
from pytracer.analyze.evidence.own_code.kept_address import by_other_thread, kept_address
from pytracer.analyze.view import ProcessView


def ran_into_freed(view: ProcessView) -> Expanded | None:
    """The tensor whose address the failing line passes; None where something has kept that of the freed memory."""
    place, crash = view.place, view.crash
    if place is None or crash is None or place.kind != "freed-storage" or place.storage is None:
        return None
    expanded = expanded_behind(view)  # first: the others read more of the program's source
    base = place.storage.base
    if expanded is None or any(holder.base == base for holder in crash.holders):
        return None
    return None if by_other_thread(view) or kept_address(view) is not None else expanded
