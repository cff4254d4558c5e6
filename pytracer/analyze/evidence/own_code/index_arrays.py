"""Arrays of the program that the failing line of its own native code takes an index from, as its source says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pytracer.analyze.evidence.own_code.lookups import Lookup, lookups, parameter_of
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArray, PassedArrays
from pytracer.analyze.view import ProcessView


def index_arrays(view: ProcessView, value: int) -> tuple[str, list[PassedArray]] | None:
    """Of a number that was an index as it is: where the line is (`ops.c:10`), and the arrays that may have it.

    Args:
        view: The process.
        value: The number of elements by which the address is off.

    Returns:
        None where the source is not known, or where the line takes an element that no recorded array may be.
    """
    found = lookups(view)
    if found is None:
        return None
    arrays = PassedArrays(view)
    passed = [_passed(arrays, item) for item in _leaves(found.found) if not _is_factor(found.statement, item)]
    if any(array is None for array in passed):
        return None
    fit = {item.name: item for item in passed if item is not None and item.is_integer and _may_hold(item, value)}
    return (found.place, [*fit.values()]) if fit else None


def _leaves(found: Sequence[Lookup]) -> Iterator[Lookup]:
    """What is read by a number that the function counts itself: it may lead to what faulted, and did not fault."""
    for item in found:
        if item.by:
            yield from _leaves(item.by)
        elif item.reads:
            yield item


def _may_hold(array: PassedArray, value: int) -> bool:
    return array.low is None or array.high is None or array.low <= value <= array.high


def _passed(arrays: PassedArrays, lookup: Lookup) -> PassedArray | None:
    place = parameter_of(lookup)
    return arrays.passed(*place) if place is not None else None


def _is_factor(statement: str, lookup: Lookup) -> bool:
    """`ids[i] * width`: the address would be off by as many rows."""
    text = re.escape(lookup.variable or lookup.text).replace(r"\ ", r"\s*")
    return re.search(rf"(?<!\w){text}\s*\*(?!=)|\*\s*{text}(?!\w)", statement) is not None
