"""The local array that takes the stack of a native function: of a size that its arguments decide, or simply large."""

from __future__ import annotations

import re

import msgspec

from pytracer._text import size_words
from pytracer.analyze.address_space.stack_bounds import stack_bounds
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.native_source import LocalArray, local_arrays
from pytracer.analyze.view import ProcessView

_BYTES = {
    **dict.fromkeys(("char", "int8_t", "uint8_t", "bool"), 1),
    **dict.fromkeys(("short", "int16_t", "uint16_t"), 2),
    **dict.fromkeys(("int", "unsigned", "float", "int32_t", "uint32_t"), 4),
    **dict.fromkeys(("long", "double", "int64_t", "uint64_t", "size_t", "ssize_t"), 8),
}
_LEAST_PART = 4  # of the stack: what a fixed array takes that is worth a name


class LargeLocal(msgspec.Struct, frozen=True):
    """`frame_bytes`: what the function's frame takes, where its registers show that."""

    array: LocalArray
    frame_bytes: int | None

    @property
    def summary(self) -> str:
        """`` `float data[w*h*c]` (letterbox.c:16) is a local array, and the frame takes 23.7 MiB ``."""
        takes = f", and its frame takes {size_words(self.frame_bytes)}" if self.frame_bytes is not None else ""
        return f"`{self.array.type} {self.array.name}{self.array.bounds}` ({self.array.place}) is a local array{takes}"

    def advice(self, more: str) -> str:
        """The change to make. `more`: how such a thread gets a larger stack."""
        grows = "" if self.array.size is not None else f": it grows with `{self.array.bounds.strip('[]')}`"
        return (
            f"Take the memory of `{self.array.name}` from the heap ({self.array.place}: malloc() and free(), or "
            f"std::vector), or let the caller pass it{grows}. A larger stack only moves the limit ({more})."
        )


def large_local(view: ProcessView) -> LargeLocal | None:
    """Of the innermost function, whose source is here; None where several arrays may be meant."""
    frame, bounds = next(iter(own_frames(view)), None), stack_bounds(view)
    arrays = local_arrays(frame) if frame is not None else []
    stack_bytes = bounds[1] - bounds[0] if bounds is not None else None
    found = [item for item in arrays if _is_large(item, stack_bytes)]
    return LargeLocal(found[0], _frame_bytes(view)) if len(found) == 1 else None


def _is_large(array: LocalArray, stack_bytes: int | None) -> bool:
    """Of unknown size, by names that no `#define` of the file has, or a large part of the stack."""
    sizes = re.findall(r"\[([^\]]*)\]", array.bounds)
    if array.size is None:
        return any(re.search(r"[a-z_]", size) for size in sizes)
    each = _BYTES.get(array.type.split()[-1])
    if each is None or stack_bytes is None or not all(size.isdecimal() for size in sizes[1:]):
        return False
    total = each * array.size
    for size in sizes[1:]:
        total *= int(size)
    return total * _LEAST_PART >= stack_bytes


def _frame_bytes(view: ProcessView) -> int | None:
    """From the frame pointer, which a function with an array of unknown size has, to the stack pointer."""
    crash, bounds = view.crash, stack_bounds(view)
    pointer = crash.registers.get("rbp", crash.registers.get("x29")) if crash is not None else None
    if crash is None or bounds is None or pointer is None or not bounds[0] <= pointer < bounds[1]:
        return None
    return pointer - crash.sp if crash.sp < pointer else None
