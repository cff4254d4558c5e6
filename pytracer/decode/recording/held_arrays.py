"""Arrays of NumPy among the numbers that the crash handler kept: it writes each as numbers of Python's expressions.

`img.ctypes.data` comes first, then `img.dtype.num`, and `img.shape[0]`, `img.strides[0]` for each dimension.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pytracer.decode.types.snapshot import HeldArray, HeldNumber

_DATA = ".ctypes.data"
_TYPE = ".dtype.num"
_PART = re.compile(r"^(.*)\.(shape|strides)\[(\d+)\]$")
# numpy/ndarraytypes.h, enum NPY_TYPES: the same from 1.0 to 2.4. On Linux a long has 64 bits.
_TYPES = {
    0: "bool", 1: "int8", 2: "uint8", 3: "int16", 4: "uint16", 5: "int32", 6: "uint32", 7: "int64", 8: "uint64",
    9: "int64", 10: "uint64", 11: "float32", 12: "float64", 14: "complex64", 15: "complex128", 23: "float16",
}  # fmt: skip


def split_arrays(items: Iterable[HeldNumber]) -> tuple[tuple[HeldNumber, ...], tuple[HeldArray, ...]]:
    """The numbers of variables, and the arrays; what belongs to no array stays a number."""
    numbers: list[HeldNumber] = []
    arrays: list[HeldArray] = []
    current: HeldArray | None = None
    for item in items:
        if item.expression.endswith(_DATA):
            name = item.expression.removesuffix(_DATA)
            current = HeldArray(name, item.value % (1 << 64), None, (), (), item.frame, item.depth)
            arrays.append(current)
            continue
        part = _extended(current, item) if current is not None else None
        if part is None:
            numbers.append(item)
        else:
            arrays[-1] = current = part
    return tuple(numbers), tuple(arrays)


def _extended(array: HeldArray, item: HeldNumber) -> HeldArray | None:
    """With one number more; None where that is not its."""
    if item.depth != array.depth:
        return None
    shape, strides, dtype = array.shape, array.strides, array.dtype
    match = _PART.match(item.expression)
    if item.expression == f"{array.expression}{_TYPE}":
        dtype = _TYPES.get(item.value)
    elif match is None or match[1] != array.expression:
        return None
    elif match[2] == "shape" and int(match[3]) == len(shape):
        shape = (*shape, item.value)
    elif match[2] == "strides" and int(match[3]) == len(strides):
        strides = (*strides, item.value)
    else:
        return None
    return HeldArray(array.expression, array.data, dtype, shape, strides, array.frame, array.depth)
