"""An address that an index of a sparse tensor leads to: its line of construction is known, and checks nothing.

The kernel adds index times stride to the first byte of a dense tensor, which a register held.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytracer.analyze.address_space.referrers import STATE_REGISTERS
from pytracer.analyze.evidence.indices.sparse_source import SparseSource, sparse_advice, sparse_source
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.operators.operator import OperatorTensor, find_operator, is_of_torch, tensor_words
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.platform.instruction import signed
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Confidence, Evidence

_LEAST_DIMENSIONS = 2  # the values of a sparse tensor have one


@dataclass(frozen=True)
class SparseIndex(Explanation):
    """The address is element `element` from the start of `data`, a dense tensor of the operator."""

    verdict_class = "out-of-bounds"
    names_source = True
    source: SparseSource
    data: OperatorTensor
    element: int

    def confidence(self, view: ProcessView) -> Confidence:
        """See Explanation."""
        return "likely"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        at = place_of(view, self.source.spot.file, self.source.line)
        size = f" `{self.source.size}`" if self.source.size is not None else ""
        return f": likely an index of `{self.source.name}` (constructed at {at}, unchecked) is beyond its size{size}"

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation."""
        item = self.data.item
        least, row = self.element - item.elements + item.sizes[-1], self.element // math.prod(item.sizes[1:])
        own = Evidence(
            "tensor",
            f"the address is element {self.element} from the start of {tensor_words(self.data)}: row {row}, or in a "
            f"right row one of {least}..{self.element} in the last dimension, of {item.sizes[-1]}",
            tensor=self.data.name,
            value=self.element,
            limit=item.elements,
        )
        return (own, address)

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return sparse_advice(view, self.source)

    @property
    def missing(self) -> str | None:
        """See Explanation."""
        return "the indices of the sparse tensor: a crash reads those of plain tensors only"


def sparse_index(view: ProcessView) -> SparseIndex | None:
    """None where no sparse tensor of the line is known, where its indices are, or where the address does not fit."""
    crash, place, operator = view.crash, view.place, find_operator(view)
    if crash is None or place is None or place.kind != "unmapped" or operator is None or not is_of_torch(operator):
        return None
    held = {value for name, value in crash.registers.items() if name not in STATE_REGISTERS}
    dense = [
        (item, element)
        for item in operator.tensors
        if item.item.base in held and (element := _element(item, place.addr)) is not None
    ]
    source = sparse_source(view) if len({item.item.base for item, _ in dense}) == 1 else None
    if source is None or source.is_compressed:
        return None
    return SparseIndex(source, *dense[0])


def _element(tensor: OperatorTensor, addr: int) -> int | None:
    """How many elements from its start, outside of it, the address is; of a dense tensor of several dimensions."""
    item, nbytes = tensor.item, tensor.item.element_bytes
    whole = len(item.sizes) == item.dimensions and math.prod(item.sizes) == item.elements
    if item.is_integer or nbytes is None or item.dimensions < _LEAST_DIMENSIONS or not whole or not item.elements:
        return None
    element, rest = divmod(signed(addr - item.base), nbytes)
    return element if rest == 0 and not 0 <= element < item.elements else None
