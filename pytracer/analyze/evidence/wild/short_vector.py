"""A container of the program's own C++ that a loop left, which counts by another one."""

from __future__ import annotations

from pytracer.analyze.evidence.own_code.vector_bounds import vector_bounds
from pytracer.analyze.evidence.wild.by_source import BySource
from pytracer.analyze.view import ProcessView


def short_vector(view: ProcessView) -> BySource | None:
    """None where the source does not show both lengths; sure where a register points behind the container."""
    found = vector_bounds(view)
    return BySource(found, found.register is not None and found.bound.value is not None) if found is not None else None
