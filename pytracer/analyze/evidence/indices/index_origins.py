"""What an impossible index shows about where it came from: another width of integer, or a float that is no number."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pytracer.analyze.evidence.indices.byte_order import reversed_range
from pytracer.analyze.evidence.operators.operator import Operator, OperatorTensor

_HALF = 1 << 32
_NO_NUMBERS = (-(1 << 31), -(1 << 63))  # what x86-64 makes of NaN, and of a float that does not fit
_INTEGERS = ("int32", "uint32")
_NARROW = {"int8": 8, "int16": 16, "int32": 32}
_NEARLY = 32  # values of random order come as close to both ends


def pair_of(operator: Operator | None, index: int) -> OperatorTensor | None:
    """The tensor of 32-bit integers of which two neighbours were read as one of 64 bits."""
    tensors = operator.tensors if operator is not None else ()
    for item in tensors:
        low, high = item.item.minimum, item.item.maximum
        if item.item.dtype not in _INTEGERS or low is None or high is None:
            continue
        for unit in {1, *_row_elements(tensors)}:
            upper, lower = divmod(index // unit, _HALF)
            lower = lower - _HALF if lower >> 31 else lower
            if upper and low <= lower <= high and low <= upper <= high:
                return item
    return None


def _row_elements(tensors: tuple[OperatorTensor, ...]) -> Iterator[int]:
    """By how much an index of each tensor's first dimension is multiplied."""
    for item in tensors:
        if item.item.sizes and not item.item.is_integer and item.item.dimensions == len(item.item.sizes):
            yield max(math.prod(item.item.sizes[1:]), 1)


def is_no_number(index: int) -> bool:
    """Whether it is what the processor makes of NaN, of infinity, or of a float that is too large for the type."""
    return index in _NO_NUMBERS


def narrow_words(item: OperatorTensor) -> str:
    """`, the range of int16`: where the values fill that of a narrower type, of both signs, through which they went."""
    low, high = item.item.minimum, item.item.maximum
    if low is None or high is None:
        return ""
    for dtype, bits in _NARROW.items():
        edge = 1 << (bits - 1)
        nearly = edge - edge // _NEARLY
        if item.item.dtype != dtype and -edge <= low <= -nearly and nearly <= high < edge:
            return f", the range of {dtype}"
    return ""


def index_advice(operator: Operator | None, index: int) -> str | None:
    """What to check; None where the index shows nothing about its origin."""
    item = pair_of(operator, index)
    if item is not None:
        name = f"`{item.name}`" if item.name else "the index tensor"
        return (
            f"Pass {name} as int64 (.long()), or let the function read {item.item.dtype}: the index looks like two "
            "neighbours of it that were read as one number of 64 bits."
        )
    for tensor in operator.tensors if operator is not None else ():
        ends = reversed_range(tensor.item) if index in (tensor.item.minimum, tensor.item.maximum) else None
        if ends is not None:
            return byte_order_advice(f"`{tensor.name}`" if tensor.name else "the index tensor", ends)
    if is_no_number(index):
        return (
            f"Check the floats that the index is computed from with isfinite(): {index} is what the processor makes of "
            "NaN, infinity, or a number too large for the integer type."
        )
    return None


def byte_order_advice(name: str, ends: tuple[int, int]) -> str:
    """Of a tensor whose numbers have their bytes in the other order; `ends`: as they were written."""
    return (
        f"Read {name} in the byte order in which it was written: its numbers are {ends[0]}..{ends[1]} with their bytes "
        "reversed (`>i8` for big-endian ones, then .astype(np.int64))."
    )
