"""An operator that is not there any more, or reads freed memory: its torch.library.Library was collected."""

from __future__ import annotations

from pytracer._patterns import Pattern
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.own_code.deregistered import deregistered
from pytracer.analyze.evidence.own_code.dropped_operators import DroppedOperators

# What the dispatcher says of an entry that is gone; sizes read out of freed memory become allocations.
_GONE = Pattern(r"_OpNamespace'|schema registered|SchemaOrThrow|std::(?:bad_alloc|bad_array_new_length|length_error)")


def dropped_library(at: FailingLine) -> str | None:
    """The advice."""
    found = _found(at)
    return found.advice if found is not None else None


def dropped_library_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _found(at)
    return found.summary if found is not None else None


def dropped_library_behind(at: FailingLine) -> Behind | None:
    """Where what held it was made."""
    found = _found(at)
    return Behind.of([], found) if found is not None else None


def _found(at: FailingLine) -> DroppedOperators | None:
    may_be = at.kind == "MemoryError" or _GONE.search(at.message) is not None
    return deregistered(at.snapshot, at.stack) if may_be else None
