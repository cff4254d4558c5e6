"""A tensor that was made of an address of 32 bits, in a process whose memory lies above: the address was cut.

`from_address()`, `frombuffer()` and `as_array()` believe any address. ctypes converts what a function returns to a C
int where its restype is not set.
"""

from __future__ import annotations

import msgspec

from pytracer._text import hex_addr
from pytracer.analyze.evidence.lifetime.where_made import line_that_made, own_line
from pytracer.analyze.evidence.own_code.missing_restype import MissingRestype, missing_restype
from pytracer.analyze.evidence.wild.truncated_address import HALF, is_half
from pytracer.analyze.tensors.origins import is_borrowed
from pytracer.analyze.view import ProcessView

_WHOLE = 1 << 64


class CutMemory(msgspec.Struct, frozen=True):
    """`base`: where the tensor says that its memory begins; `made`: the line that made it, of what C `returned`."""

    base: int
    made: str | None
    returned: MissingRestype | None = None

    @property
    def summary(self) -> str:
        """Behind the headline."""
        if self.returned is not None:
            return (
                f"it was made of what {self.returned.function}() returned at {self.returned.at}, of whose address "
                f"ctypes kept 32 bits, {hex_addr(self.base)}, as no restype is set for it"
            )
        return (
            f"it was made of the address {hex_addr(self.base)}, which has 32 bits, and this process has no memory "
            "there: the upper half was lost"
        )

    @property
    def advice(self) -> str:
        """What to change."""
        if self.returned is not None:
            return (
                f"Set `{self.returned.function}.restype = ctypes.c_void_p` (or POINTER(...)) before "
                f"{self.returned.at} calls it: without it ctypes takes the result for a C int, and keeps 32 bits of "
                "the address."
            )
        line = f", before {self.made} makes a tensor of it" if self.made is not None else ""
        return (
            "Set `restype = ctypes.c_void_p` (or POINTER(...)) of the C function that returned the address"
            f"{line}: without it ctypes takes the result for a C int, and keeps 32 bits. An address that is passed "
            "needs argtypes, or ctypes.c_void_p(...), for the same reason."
        )


def cut_memory(view: ProcessView) -> CutMemory | None:
    """None where the tensor's memory may be where it says, or the process has memory below 4 GiB."""
    crash, storage = view.crash, view.place.storage if view.place is not None else None
    if crash is None or storage is None or not crash.mappings or not is_borrowed(storage) or not is_half(storage.base):
        return None
    if any(item.start < HALF for item in crash.mappings):
        return None
    frame = own_line(storage.allocated_by)
    returned = missing_restype(view, frame.file, frame.line) if frame is not None else None
    return CutMemory(storage.base % _WHOLE, line_that_made(view, storage.base, also_failing=True), returned)
