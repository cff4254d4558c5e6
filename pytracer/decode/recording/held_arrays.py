"""Arrays of NumPy among the numbers that the crash handler kept: it writes each as numbers of Python's expressions.

`img.ctypes.data` comes first, then `img.dtype.num`, and `img.shape[0]`, `img.strides[0]` for each dimension. What its
elements are comes later: `ids.min()`, `ids.max()`, of floats `img.isnan().sum()` and `img.isinf().any()`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import structs

from pytracer.decode.types.snapshot import HeldArray, HeldNumber

_DATA = ".ctypes.data"
_TYPE = ".dtype.num"
_PART = re.compile(r"^(.*)\.(shape|strides)\[(\d+)\]$")
_VALUE = {".min()": "minimum", ".max()": "maximum", ".isnan().sum()": "nan_count", ".isinf().any()": "has_infinity"}
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
        if part is not None:
            arrays[-1] = current = part
        elif not _is_value(arrays, item):
            numbers.append(item)
    return tuple(numbers), tuple(arrays)


def _is_value(arrays: list[HeldArray], item: HeldNumber) -> bool:
    """Whether it is one of an array's elements; the array has it then."""
    end = next((end for end in _VALUE if item.expression.endswith(end)), None)
    at = _place(arrays, item, item.expression.removesuffix(end)) if end is not None else None
    if at is None or end is None:
        return False
    unsigned = arrays[at].dtype == "uint64" and end in (".min()", ".max()")
    array = structs.replace(arrays[at], **{_VALUE[end]: item.value % (1 << 64) if unsigned else item.value})
    if None not in (array.minimum, array.maximum) and (array.minimum or 0) > (array.maximum or 0):
        array = structs.replace(array, minimum=None, maximum=None)  # of uint64, which the handler compared with a sign
    arrays[at] = array
    return True


def _place(arrays: Sequence[HeldArray], item: HeldNumber, expression: str) -> int | None:
    held = (at for at, one in enumerate(arrays) if (one.expression, one.depth) == (expression, item.depth))
    return next(held, None)


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
    return structs.replace(array, dtype=dtype, shape=shape, strides=strides)
