"""A pointer that the program's own C read from beside an array, by a byte of a text that is no letter."""

from __future__ import annotations

from pytracer.analyze.evidence.own_code.letter_index import letter_index
from pytracer.analyze.evidence.wild.by_source import BySource
from pytracer.analyze.view import ProcessView


def letter(view: ProcessView) -> BySource | None:
    """None where the source does not show such an index."""
    found = letter_index(view)
    return BySource(found, sure=False) if found is not None else None
