"""An index that the program's own C computed, and that leads out of the array that its failing line indexes."""

from __future__ import annotations

from pytracer.analyze.evidence.own_code.indexed_array import indexed_array
from pytracer.analyze.evidence.wild.by_source import BySource
from pytracer.analyze.view import ProcessView


def left_array(view: ProcessView) -> BySource | None:
    """Sure: registers have the array and the index, and the source has which array it is."""
    found = indexed_array(view)
    return BySource(found, sure=True) if found is not None else None
