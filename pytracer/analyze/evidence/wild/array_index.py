"""An array of NumPy that the running line passes to the program's native code, and an index that leads out of it.

The failing instruction names both: a register that points into the array, and the number that is added to it. Or a
register has the array's first byte, and the address is less than the array's own length away. What was freed where the
address lies, or which tensor is near, has nothing to do with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytracer._text import count_words, hex_addr, list_words, size_words
from pytracer.analyze.address_space.referrers import data_registers
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.operators.operator import find_operator
from pytracer.analyze.evidence.own_code.arrays import array_words, line_arrays, per_item
from pytracer.analyze.evidence.own_code.native_bounds import native_bounds
from pytracer.analyze.evidence.own_code.row_below import row_below
from pytracer.analyze.evidence.wild.explanation import Explanation
from pytracer.analyze.platform.instruction import signed
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import HeldArray
from pytracer.report.job import Confidence, Evidence

_LARGEST_ACCESS_BYTES = 64
_FAR_BYTES = 1 << 30  # no wrong length or stride leads so far: an index has a wrong value
_UNPROVEN = "proof that the access was counted from there: the index is in no register"
_HALF, _MOST_TIMES, _LARGEST_REST = 1 << 32, 1 << 20, 1 << 24


@dataclass(frozen=True)
class ArrayIndex(Explanation):
    """`base` held `pointer`, an address in `array`; the fault is at `addr`, outside of it.

    `index`: what the instruction itself multiplied and added to that register; None where it added nothing.
    """

    verdict_class = "out-of-bounds"
    array: HeldArray
    base: str
    pointer: int
    addr: int
    index: int | None

    @property
    def is_explained(self) -> bool:
        """See Explanation."""
        return self.index is not None

    def confidence(self, view: ProcessView) -> Confidence:
        """Of a pointer into the middle the instruction may have meant another array."""
        return "certain" if self.index is not None and self.pointer == self.array.data else "likely"

    def clause(self, view: ProcessView) -> str:
        """See Explanation."""
        if self.index is not None and abs(self.moved) >= _FAR_BYTES:
            return f": index {self.index}{_wrapped(self.index)} leads out of {array_words(self.array)}"
        low, high = self.array.extent or (self.pointer, self.pointer)
        outside = low - self.addr if self.moved < 0 else self.addr - high
        side = "before" if self.moved < 0 else "behind"
        return f": {size_words(outside)} {side} {array_words(self.array)}{self._row}"

    @property
    def moved(self) -> int:
        """From the pointer to the address, in bytes."""
        return signed(self.addr - self.pointer)

    @property
    def _row(self) -> str:
        """`` , as row -1 would be ``, where it is the first byte of one."""
        rows = self.array.row_strides
        if rows is None or len(rows) < 2 or not self.array.in_a_row:
            return ""
        row, rest = divmod(self.addr - self.array.data, rows[0])
        return f", where row {row} would begin" if rest == 0 else ""

    def evidence(self, view: ProcessView, address: Evidence | None) -> list[Evidence | None]:
        """See Explanation."""
        at = self.pointer - self.array.data
        where = "at the first byte of" if at == 0 else f"{count_words(at, 'byte')} into"
        words = f"{self.base} points {where} {array_words(self.array)}"
        words += f", and the instruction adds {self.moved} bytes" if self.index is not None else ""
        return [
            Evidence("address-sum", words, register=self.base, base=hex_addr(self.array.data), value=self.moved),
            address,
        ]

    def advice(self, view: ProcessView) -> str:
        """See Explanation."""
        below = self.moved < 0 or (self.index is not None and _wrapped(self.index) != "")
        way = "goes below 0" if below else "goes past its end"
        index = f"The index of `{self.array.expression}`, which {line_words(view)} passes, {way}"
        row = row_below(view, self._elements) if below else None
        if row is not None:
            return f"{index}: {row.advice(view)}"
        bounds = native_bounds(view) if not below else None
        line = f" {bounds.words}" if bounds is not None else ""
        numbers = [item.expression for item in per_item(view, self.array)]
        if numbers:
            return (
                f"{index}: compare {list_words([f'`{name}`' for name in numbers])}, item by item, with its shape and "
                f"with one another.{line}"
            )
        return (
            f"{index}: compare the lengths and indices that are passed, of each item of a batch, with its shape.{line}"
        )

    @property
    def _elements(self) -> int | None:
        """From the first element on, where the access was counted from there."""
        nbytes = self.array.element_bytes
        return self.moved // nbytes if nbytes and self.pointer == self.array.data else None

    @property
    def missing(self) -> str | None:
        """See Explanation."""
        return None if self.index is not None else _UNPROVEN


def _wrapped(index: int) -> str:
    """`(y - 1) * 450 + 255` with an unsigned `y` of 0 is (2**32 - 1) * 450 + 255."""
    times, rest = divmod(index, _HALF)
    times, below = times + 1, _HALF - rest
    if not 0 < times < _MOST_TIMES or below >= _LARGEST_REST:
        return ""
    if times == 1:
        return f" (2**32 - {below}, as an unsigned number below 0 is)"
    rows = -(-below // times)
    more = f" + {rows * times - below}" if rows * times > below else ""
    return f" ((2**32 - {rows}) * {times}{more}: an unsigned -{rows}, times {times})"


def array_index(view: ProcessView) -> ArrayIndex | None:
    """None where no register points at an array of the line, or registers do at several; and in torch's operators."""
    if view.place is None or view.crash is None or find_operator(view) is not None:
        return None
    arrays = [item for item in line_arrays(view) if _leads_out(item, view.place.addr)]
    added = [*_by_operands(view, arrays)]
    held = added or [*_by_registers(view, arrays)]
    return held[0] if len({item.array for item in held}) == 1 else None


def _leads_out(array: HeldArray, addr: int) -> bool:
    return (span := array.extent) is not None and not span[0] <= addr < span[1]


def _by_operands(view: ProcessView, arrays: list[HeldArray]) -> Iterator[ArrayIndex]:
    """The pointer of the failing instruction; of two registers that are not multiplied either may be that."""
    place, instruction = view.place, view.instruction
    if place is None or instruction is None or instruction.addr is None or instruction.is_lane:
        return
    base, index = (instruction.base, instruction.base_value), (instruction.index, instruction.index_value)
    ways = [(*base, index[1]), (*index, base[1])] if instruction.scale == 1 else [(*base, index[1])]
    if not 0 <= place.addr - instruction.addr < _LARGEST_ACCESS_BYTES:
        return
    for register, pointer, number in ways:
        if register is None or pointer is None or not number:
            continue
        for array in arrays:
            span = array.extent
            if span is not None and span[0] <= pointer < span[1]:
                yield ArrayIndex(array, register, pointer, place.addr, signed(number))


def _by_registers(view: ProcessView, arrays: list[HeldArray]) -> Iterator[ArrayIndex]:
    """Any register with the first byte of one, at most the array's length away: rows that it has not."""
    crash, place = view.crash, view.place
    if crash is None or place is None:
        return
    for register, value in data_registers(crash).items():
        for array in arrays:
            low, high = array.extent or (0, 0)
            if value == array.data and low - (high - low) <= place.addr < high + (high - low):
                yield ArrayIndex(array, register, value, place.addr, None)
