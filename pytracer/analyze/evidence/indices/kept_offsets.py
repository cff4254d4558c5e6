"""Row pointers of a part of a compressed sparse matrix that are still the offsets of the whole.

Those of a matrix of its own begin at 0 and end at the number of its indices (torch, docs/sparse: crow_indices).
"""

from __future__ import annotations

import msgspec

from pytracer.analyze.evidence.operators.operator import Operator


class KeptOffsets(msgspec.Struct, frozen=True):
    """They go from `first` to `last`, and count as many indices as there are."""

    first: int
    last: int

    @property
    def count(self) -> int:
        """Of the plain indices."""
        return self.last - self.first

    @property
    def words(self) -> str:
        """What they should be."""
        return f"from {self.first} to {self.last}, and must begin at 0 and end at {self.count}"


def kept_offsets(operator: Operator | None) -> KeptOffsets | None:
    """Of an operator that works on a compressed sparse tensor; None unless exactly one pair of its tensors fits."""
    tensors = [item.item for item in operator.tensors if item.item.is_integer] if operator is not None else []
    rows = [item for item in tensors if item.dimensions == 1 and item.elements > 1]
    counts = {item.elements for item in rows}
    found = {
        (item.minimum, item.maximum)
        for item in rows
        if item.minimum is not None and item.maximum is not None
        if item.minimum > 0 and item.maximum - item.minimum in counts - {item.elements}
    }
    return KeptOffsets(*found.pop()) if len(found) == 1 else None
