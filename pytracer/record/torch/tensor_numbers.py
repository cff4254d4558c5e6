"""The numbers in a small tensor, read from its memory by the kernel.

No operator of torch's runs: one would call the program's dispatch modes, wait for threads that a forked child does not
have, and fault where the memory is gone, in a process that ends by an exception otherwise.
"""

from __future__ import annotations

import itertools
import math
import os
import struct
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import torch

Number: TypeAlias = int | float | bool

MOST_ELEMENTS = 1 << 14
_MOST_BYTES = 1 << 17
_FORMATS = {
    "float64": "d", "float32": "f", "float16": "e", "int64": "q", "int32": "i", "int16": "h", "int8": "b",
    "uint64": "Q", "uint32": "I", "uint16": "H", "uint8": "B", "bool": "?",
}  # fmt: skip


def numbers_of(tensor: torch.Tensor) -> tuple[Number, ...] | None:
    """All of them, in order; None of a tensor that is empty, large, elsewhere than on the CPU, or cannot be read."""
    kind = str(tensor.dtype).removeprefix("torch.")
    sizes, strides = tuple(tensor.shape), tensor.stride()
    if str(tensor.device) != "cpu" or str(tensor.layout) != "torch.strided" or tensor.is_neg():
        return None
    count = math.prod(sizes)
    span = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    nbytes = span * tensor.element_size()
    if not 0 < count <= MOST_ELEMENTS or nbytes > _MOST_BYTES or (kind not in _FORMATS and kind != "bfloat16"):
        return None
    try:
        addr = tensor.data_ptr()
    except RuntimeError:  # it has no storage, as below torch.func.vmap()
        return None
    content = _read(addr, nbytes)
    if content is None:
        return None
    found = _unpacked(kind, content, span)
    if count == span:
        return found  # whatever their order
    offsets = itertools.product(*(range(0, size * stride, stride) if stride else (0,) * size
                                  for size, stride in zip(sizes, strides, strict=True)))  # fmt: skip
    return tuple(found[sum(offset)] for offset in offsets)


def first_numbers(tensor: torch.Tensor, most: int = 2048) -> tuple[Number, ...] | None:
    """Those that lie first in its memory, of a tensor of floats without gaps; None where numbers_of() has none."""
    kind = str(tensor.dtype).removeprefix("torch.")
    if "float" not in kind or (kind not in _FORMATS and kind != "bfloat16") or str(tensor.device) != "cpu":
        return None
    if str(tensor.layout) != "torch.strided" or tensor.is_neg() or not tensor.is_contiguous():
        return None
    count = min(math.prod(tuple(tensor.shape)), most)
    try:
        addr = tensor.data_ptr() if count else 0
    except RuntimeError:  # as above
        return None
    content = _read(addr, count * tensor.element_size())
    return _unpacked(kind, content, count) if content is not None else None


def numbers_of_array(array: Any) -> tuple[Number, ...] | None:
    """Of a NumPy array of floats without gaps, of exactly that type; None of a large one."""
    kind, flags = str(array.dtype), array.flags
    if (
        kind not in ("float64", "float32", "float16")
        or not 0 < array.size <= MOST_ELEMENTS
        or array.nbytes > _MOST_BYTES
    ):
        return None
    if not (flags.c_contiguous or flags.f_contiguous):
        return None
    content = _read(array.__array_interface__["data"][0], array.nbytes)
    return _unpacked(kind, content, array.size) if content is not None else None


def _unpacked(kind: str, content: bytes, count: int) -> tuple[Number, ...]:
    if kind != "bfloat16":
        return struct.unpack(f"={count}{_FORMATS[kind]}", content)
    halves = struct.unpack(f"={count}H", content)  # the upper halves of float32
    return struct.unpack(f"={count}f", struct.pack(f"={count}I", *(half << 16 for half in halves)))


def _read(addr: int, nbytes: int) -> bytes | None:
    """By /proc/self/mem: memory that is gone is an error, and no fault."""
    if not addr:
        return None
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        content = os.pread(memory, nbytes, addr)
    except (OSError, OverflowError):
        return None
    finally:
        os.close(memory)
    return content if len(content) == nbytes else None
