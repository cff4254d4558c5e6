"""An index tensor of an operator whose values were not read: too many for the handler, or `--no-values`.

The address is then known only as: a whole number of rows away from the first byte of another tensor of the operator,
which a register held.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytracer._text import count_words
from pytracer.analyze.address_space.referrers import STATE_REGISTERS
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.operators.operator import OperatorTensor, find_operator, tensor_name, tensor_words
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.platform.instruction import signed
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence

_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "complex64": 8, "complex128": 16}
_LEAST_ROW_BYTES = 8


@dataclass(frozen=True)
class UnreadIndex(Explanation):
    """The address is `rows` rows of `row_bytes` bytes away from the first byte of `data`; `index` has the numbers."""

    verdict_class = "out-of-bounds"
    operator: str
    index: OperatorTensor
    data: OperatorTensor
    rows: int
    row_bytes: int

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        return (
            f": possibly by an index of {tensor_name(self.index)}; the address is row {self.rows} of "
            f"{tensor_name(self.data)}, which has {count_words(self.data.item.sizes[0], 'row')}"
        )

    def evidence(self, view: ProcessView, address: Evidence | None) -> Sequence[Evidence | None]:
        """See Explanation."""
        own = Evidence(
            "tensor",
            f"a register held the first byte of {tensor_words(self.data)}; the address is {self.rows} rows of "
            f"{self.row_bytes} bytes away, a whole number; {self.operator} works on {tensor_words(self.index)}, too",
            tensor=self.index.name,
            value=self.rows,
            limit=self.data.item.sizes[0],
            nbytes=self.row_bytes,
        )
        return (own, address)

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        return (
            f"Check the values of {tensor_name(self.index)} before {line_words(view)} passes it: min() and max() must "
            f"lie inside {tensor_name(self.data)}, and none may come from torch.empty(). If they do, run it under "
            "AddressSanitizer."
        )

    @property
    def missing(self) -> str | None:
        """See Explanation."""
        return f"the values of {tensor_name(self.index)}: a crash reads those of small tensors only"


def unread_index(view: ProcessView) -> UnreadIndex | None:
    """None where no tensor of integers is unread, or more than one is, or where the distance is no number of rows."""
    crash, place, operator = view.crash, view.place, find_operator(view)
    if crash is None or place is None or operator is None:
        return None
    unread = [
        item
        for item in operator.tensors
        if item.passed and item.item.is_integer and item.item.elements and item.item.minimum is None
    ]
    held = {value for name, value in crash.registers.items() if name not in STATE_REGISTERS}
    if len(unread) != 1:
        return None
    for data in operator.tensors:
        row_bytes = math.prod(data.item.sizes[1:]) * _BYTES.get(data.item.dtype or "", 0)
        if row_bytes < _LEAST_ROW_BYTES or data.item.dimensions != len(data.item.sizes) or data.item.base not in held:
            continue
        rows, rest = divmod(signed(place.addr - data.item.base), row_bytes)
        if rest == 0 and not 0 <= rows < data.item.sizes[0]:
            return UnreadIndex(operator.name, unread[0], data, rows, row_bytes)
    return None
