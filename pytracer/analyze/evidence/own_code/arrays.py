"""Arrays of NumPy that the crashed line's variables held: their shape, type and memory, as numbers of the recording."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pytracer._text import hex_addr
from pytracer.analyze.address_space.referrers import STATE_REGISTERS
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.syntax.lines import names_of_line
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import HeldArray
from pytracer.report.job import Evidence

_LEAST_ROW = 256  # smaller numbers are in registers by chance


def line_arrays(view: ProcessView) -> list[HeldArray]:
    """Those of variables that the crashed line reads."""
    frame = next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    names = names_of_line(tree, frame.line) if tree is not None and frame is not None and frame.line is not None else []
    return [item for item in _of_frame(view) if item.expression in names]


def held_array(view: ProcessView, name: str) -> HeldArray | None:
    """The array of a variable of the crashed line's function."""
    return next((item for item in _of_frame(view) if item.expression == name), None)


def _of_frame(view: ProcessView) -> Iterator[HeldArray]:
    crash, frame = view.crash, next(iter(program_frames(view)), None)
    for item in crash.arrays if crash is not None and frame is not None else ():
        at = item.frame
        if frame is not None and (at.file, at.line, at.function) == (frame.file, frame.line, frame.function):
            yield item


def array_words(item: HeldArray) -> str:
    """`` `img` [4096, 3000] float32 ``."""
    return f"`{item.expression}` [{', '.join(map(str, item.shape))}]{f' {item.dtype}' if item.dtype else ''}"


def per_item(view: ProcessView, array: HeldArray) -> list[HeldArray]:
    """Whole numbers that the line passes as well, two or more arrays of one length: such as lengths, item by item."""
    found = [
        item
        for item in line_arrays(view)
        if item != array
        and len(item.shape) == 1
        and item.shape[0] > 1
        and (item.dtype or "").startswith(("int", "uint"))
    ]
    alike = [item for item in found if [one.shape for one in found].count(item.shape) > 1]
    return alike if len({item.shape for item in alike}) == 1 else []


def array_at(view: ProcessView, addr: int) -> HeldArray | None:
    """The only array of the line that has memory there."""
    found = [item for item in line_arrays(view) if (span := item.extent) is not None and span[0] <= addr < span[1]]
    return found[0] if len(found) == 1 else None


def array_from(view: ProcessView, addr: int) -> str | None:
    """The words for the only array of the line that has memory there, where that is its first byte."""
    array = array_at(view, addr)
    return array_words(array) if array is not None and array.data == addr else None


class WalkedArray(msgspec.Struct, frozen=True):
    """The address is in row `row` of `array`, as a register has it: another one, `register`, has the first byte."""

    array: HeldArray
    register: str
    row_register: str
    row: int

    @property
    def evidence(self) -> Evidence:
        """What the registers have."""
        return Evidence(
            "overrun",
            f"{self.register} points at the first byte of {array_words(self.array)}, and {self.row_register} has "
            f"{self.row}: the address is in row {self.row}, counted from 0",
            register=self.register,
            base=hex_addr(self.array.data),
            value=self.row,
        )


def walked_array(view: ProcessView) -> WalkedArray | None:
    """The only array of the line that a loop upwards left, by its first byte and the row in registers."""
    place, crash = view.place, view.crash
    if place is None or crash is None:
        return None
    found = []
    for item in line_arrays(view):
        stride = item.strides[0] if item.strides else 0
        row = (place.addr - item.data) // stride if stride > 0 else 0
        base, counter = (
            next(
                (name for name, held in crash.registers.items() if held == value and name not in STATE_REGISTERS), None
            )
            for value in (item.data, row)
        )
        if base is not None and counter is not None and row >= max(item.shape[0], _LEAST_ROW):
            found.append(WalkedArray(item, base, counter, row))
    return found[0] if len(found) == 1 else None


def left_array(view: ProcessView, low: int) -> HeldArray | None:
    """The array that a loop upwards may have left at the fault: one that is not in a row, else the only one before it.

    `low`: from there on the memory before the address may be accessed without a gap.
    """
    place = view.place
    if place is None:
        return None
    before = [
        item
        for item in line_arrays(view)
        if (span := item.extent) is not None and low <= span[0] < span[1] <= place.addr
    ]
    odd = [item for item in before if item.in_a_row is False]
    found = odd or before
    return found[0] if len(found) == 1 else None
