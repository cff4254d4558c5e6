"""A recorded array that claims more memory than begins where it does, and of which no variable held what it is made of.

Its shape and strides are on record, and the memory map has up to where its memory may reach at most. A worker of a
DataLoader has the view of its data set, and not the array that the parent made this of.
"""

from __future__ import annotations

import msgspec

from pytracer._text import size_words
from pytracer.analyze.address_space.overrun import there_of_block
from pytracer.analyze.address_space.regions import mapping_at
from pytracer.analyze.evidence.lifetime.unmapping import unmapping_of
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.arrays import line_arrays
from pytracer.analyze.evidence.own_code.recorded_arrays import RecordedArrays
from pytracer.analyze.evidence.own_code.stride_orders import StrideOrder, other_order
from pytracer.analyze.evidence.own_code.view_makers import held_view, read_by_line, span, strided_call
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import HeldArray


class UnownedView(msgspec.Struct, frozen=True):
    """`array` holds the fault address, and of its memory at most `there` bytes exist.

    `made`: the line that calls as_strided(); None if not found.
    """

    array: HeldArray
    there: int
    made: LineWords | None
    order: StrideOrder | None = None

    @property
    def reach(self) -> int:
        """Bytes from its first one to its end."""
        return span(self.array.shape, self.array.strides)[1] + (self.array.element_bytes or 1)

    @property
    def summary(self) -> str:
        """For the headline."""
        item = self.array
        what = f"`{item.expression}`, shape {list(item.shape)} and strides {item.strides}"
        made = f" by as_strided() at {self.made}" if self.made is not None else ""
        return (
            f"{what}{made}, reaches {size_words(self.reach)} from its first byte, of which at most "
            f"{size_words(self.there)} exist{'; in another order its strides would fit' * (self.order is not None)}"
        )

    def fact(self, addr: int) -> str:
        """What the memory map has."""
        name = self.array.expression
        return (
            f"the address is {addr - self.array.data} bytes into `{name}`, which claims {self.reach} by its shape and "
            f"strides, and the memory where it begins ends after {self.there}"
        )

    @property
    def advice(self) -> str:
        """What to change."""
        item = self.array
        if self.made is None:
            return (
                f"Compare the shape {item.shape} and the strides {item.strides}, in bytes, of `{item.expression}` with "
                "the memory that it is made of: as_strided() and addresses of native code check neither. If they fit, "
                "that memory was given back while it was in use."
            )
        how = self.order.advice if self.order is not None else f"Correct the shape or the strides at {self.made}."
        return (
            f"{how} as_strided() checks nothing; numpy.lib.stride_tricks.sliding_window_view(x, size, axis=...) makes "
            "windows, and checks (`[::n]` of it is every n-th)."
        )


def unowned_view(view: ProcessView) -> UnownedView | None:
    """None where no array of the line has the address, all of it may be there, or its memory is gone as a whole."""
    place, crash, frames = view.place, view.crash, program_frames(view)
    if place is None or crash is None or not crash.arrays or unmapping_of(view) is not None:
        return None
    mapping = mapping_at(crash.mappings, place.addr)
    if mapping is not None and "r" in mapping.permissions:
        return None
    arrays = RecordedArrays(view, Slice(view.process.snapshot, frames))
    found = {}
    for item, made in _of_line(view, arrays):
        there = there_of_block(crash, item.data) if _holds(item, place.addr) else 0
        if 0 < there <= place.addr - item.data:
            found[item.data, item.shape, item.strides] = _unowned(view, arrays, item, made, there)
    return next(iter(found.values())) if len(found) == 1 else None


def _unowned(view: ProcessView, arrays: RecordedArrays, item: HeldArray, made: Made | None, there: int) -> UnownedView:
    if made is None:
        return UnownedView(item, there, None)
    order = other_order(view, arrays, made, (item.shape, item.strides), item.element_bytes or 1, there)
    return UnownedView(item, there, place_of(view, made.spot.file, made.line), order)


def _of_line(view: ProcessView, arrays: RecordedArrays) -> list[tuple[HeldArray, Made | None]]:
    """Arrays that the line reads: those by as_strided(), with its call, else those that no slice of an array can be."""
    spot = arrays.back.spot(0)
    found: list[tuple[HeldArray, Made | None]] = []
    for node in read_by_line(spot) if spot is not None else ():
        strided = strided_call(arrays.back, node, spot) if spot is not None else None
        held = held_view(arrays, *strided) if strided is not None else None
        if strided is not None and held is not None:
            found.append((held, strided[2]))
    return found or [(item, None) for item in line_arrays(view) if _overlaps(item)]


def _holds(item: HeldArray, addr: int) -> bool:
    extent = item.extent
    return extent is not None and min(item.strides, default=0) >= 0 and extent[0] <= addr < extent[1]


def _overlaps(item: HeldArray) -> bool:
    """Whether a dimension steps by less than a smaller one has: no slice of an array without gaps is so."""
    steps = sorted(
        (stride, size) for stride, size in zip(item.strides, item.shape, strict=False) if stride and size > 1
    )
    inner = [stride * (size - 1) for stride, size in steps]
    return any(sum(inner[:at]) >= steps[at][0] for at in range(1, len(steps)))
