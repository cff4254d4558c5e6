"""An address that a loop of the program's own C came to, which counts up to `n - 1` of an unsigned 0."""

from __future__ import annotations

from pytracer.analyze.evidence.own_code.empty_count import empty_count
from pytracer.analyze.evidence.wild.by_source import BySource
from pytracer.analyze.view import ProcessView


def wrapped_count(view: ProcessView) -> BySource | None:
    """None where no such count is known to be 0."""
    found = empty_count(view)
    return BySource(found, sure=False) if found is not None else None
