"""Lengths of segments that sum to more than the rows there are: segment_reduce checks them in the forward alone.

Of a large tensor only the extremes are known: one length is the largest, none is smaller than the smallest.
"""

from __future__ import annotations

import msgspec

from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.operators.in_backward import backward, saved_advice
from pytracer.analyze.evidence.operators.operator import OperatorTensor, find_operator, shape_words
from pytracer.analyze.view import ProcessView

_OPERATOR, _KERNEL = "segment_reduce", "lengths"


class Segments(msgspec.Struct, frozen=True):
    """`lengths` sum to `least` or more; the data has `rows`. `saved`: it is the backward that was given them."""

    lengths: OperatorTensor
    least: int
    rows: int
    saved: bool

    @property
    def summary(self) -> str:
        """`` `lengths` [96] (795..53860) sums to 129385 or more, and the data has 53860 rows ``.

        In the backward, that they probably changed: the forward raises on such lengths, but with unsafe=True.
        """
        item = self.lengths.item
        name = f"`{self.lengths.name}`" if self.lengths.name else "the tensor of lengths"
        values = f"{item.minimum}..{item.maximum}"
        changed = "; it was probably overwritten since the forward, which checks it" if self.saved else ""
        return (
            f"{name} {shape_words(item)} ({values}) sums to {self.least} or more, and the data has {self.rows} rows"
            f"{changed}"
        )

    def advice(self, view: ProcessView) -> str:
        """What changed them since the forward; else what they must sum to."""
        saved = backward(view)
        if saved is not None:
            return saved_advice(view, saved, self.lengths)
        return f"Check the lengths before {line_words(view)} passes them: {self.summary}; both must be alike."


def unfit_segments(view: ProcessView) -> Segments | None:
    """None where they may fit, or the operator was given something else."""
    operator, crash = find_operator(view), view.crash
    if operator is None or crash is None or _OPERATOR not in operator.name:
        return None
    kernels = (frame.function or "" for frame in crash.native_stack)
    if not any(_OPERATOR in name and _KERNEL in name for name in kernels):
        return None  # offsets
    integers = [item for item in operator.tensors if item.passed and item.item.is_integer]
    rows = [
        item.item.sizes[0] for item in operator.tensors if item.passed and not item.item.is_integer and item.item.sizes
    ]
    if len(integers) != 1 or not rows:
        return None
    item = integers[0].item
    if item.dimensions != 1 or item.minimum is None or item.maximum is None or item.minimum < 0:
        return None
    least = item.minimum * (item.elements - 1) + item.maximum
    return Segments(integers[0], least, max(rows), backward(view) is not None) if least > max(rows) else None
