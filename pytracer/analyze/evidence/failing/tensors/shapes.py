"""Shapes that do not fit: which operand has which dimension missing, too many, transposed or unequal."""

from __future__ import annotations

import re
from collections.abc import Callable

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.tensors.class_numbers import unfit_classes
from pytracer.analyze.evidence.failing.tensors.index_ranges import index_beyond, row_beyond
from pytracer.analyze.evidence.failing.tensors.input_shapes import unfit_channels, unlike_samples
from pytracer.analyze.evidence.failing.tensors.loss_shapes import (
    target_of_classes,
    unequal_batches,
    unfit_gradient,
    unlike_target,
)
from pytracer.analyze.evidence.failing.tensors.mask_shapes import unfit_array_mask, unfit_mask
from pytracer.analyze.evidence.failing.tensors.operand_shapes import unequal_operands, unfit_expand, unfit_matrices
from pytracer.analyze.evidence.failing.tensors.reduced import reduced_operand
from pytracer.analyze.evidence.failing.tensors.tensor_shapes import (
    out_of_order,
    unfit_values,
    unfit_view,
    without_dimension,
)

_MATRICES = Pattern(r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)")
_UNEQUAL = Pattern(
    r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension (-?\d+)"
)
_VIEW = Pattern(r"shape '\[([-\d, ]*)\]' is invalid for input of size (\d+)")
_PAIR = Pattern(
    r"[Tt]arget size \(torch\.Size\((\[[\d, ]*\])\)\) "
    r"(?:must be the same as|that is different to the) input size \(torch\.Size\((\[[\d, ]*\])\)"
)
_BATCH = Pattern(r"Expected input batch_size \((\d+)\) to match target batch_size \((\d+)\)")
_TARGET = Pattern(r"Expected target size (\[[\d, ]*\]), got (\[[\d, ]*\])")
_CHANNELS = Pattern(r"expected input(\[[\d, ]+\]) to have (\d+) channels, but got (\d+) channels")
_STACK = Pattern(
    r"stack expects each tensor to be equal size, but got (\[[\d, ]*\]) at entry 0 and (\[[\d, ]*\]) at entry (\d+)"
)
_RANGE = Pattern(r"index out of range in self|INDICES element is out of DATA bounds|Target (-?\d+) is out of bounds")
_INDEX = Pattern(r"index (-?\d+) is out of bounds for (?:dimension|axis) (\d+) with size (\d+)")
_MASK = Pattern(r"mask (\[[\d, ]*\]) at index \d+ does not match the shape of the indexed tensor (\[[\d, ]*\])")
_ARRAY_MASK = Pattern(r"boolean index did not match indexed array")
_GRADIENT = Pattern(
    r"Mismatch in shape: grad_output\[(\d+)\] has a shape of torch\.Size\((\[[\d, ]*\])\) "
    r"and output\[\d+\] has a shape of torch\.Size\((\[[\d, ]*\])\)"
)
_ASSIGNED = Pattern(
    r"shape mismatch: value tensor of shape (\[[\d, ]*\]) cannot be broadcast to indexing result of shape (\[[\d, ]*\])"
)
_EXPANDED = Pattern(
    r"expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\) at non-singleton dimension (\d+)"
)
_NO_DIMENSION = Pattern(r"Dimension out of range \(expected to be in range of \[-?\d+, (-?\d+)\], but got (-?\d+)\)")


def sizes_that_differ(at: FailingLine) -> str | None:
    """Of torch's own messages, with the variables that they are about."""
    for expression, explain in _EXPLAINED:
        found = expression.search(at.message)
        if found is not None:
            return explain(at, found)
    return unfit_classes(at) or out_of_order(at)


_EXPLAINED: tuple[tuple[Pattern, Callable[[FailingLine, re.Match[str]], str | None]], ...] = (
    (_MATRICES, unfit_matrices),
    (_UNEQUAL, lambda at, found: reduced_operand(at) or unequal_operands(at, found)),
    (_VIEW, unfit_view),
    (_PAIR, unlike_target),
    (_BATCH, unequal_batches),
    (_TARGET, target_of_classes),
    (_CHANNELS, unfit_channels),
    (_STACK, unlike_samples),
    (_RANGE, row_beyond),
    (_INDEX, index_beyond),
    (_MASK, unfit_mask),
    (_ARRAY_MASK, unfit_array_mask),
    (_GRADIENT, unfit_gradient),
    (_ASSIGNED, unfit_values),
    (_NO_DIMENSION, without_dimension),
    (_EXPANDED, unfit_expand),
)
