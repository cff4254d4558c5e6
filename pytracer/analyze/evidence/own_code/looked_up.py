"""An index that the program's own native code looked up in an array: which array, by the elements of which other one.

`col[start]` with `start = rowptr[ids[i]]` faults at `col`, and no number that was passed is wrong: where an id has no
element in `rowptr`, what lies behind it was taken for one. The source shows which array was looked up by which, the
recording their sizes, and of tensors the least and the largest number as well; of one that was made of a list, some.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import list_words
from pytracer.analyze.address_space.referrers import data_registers
from pytracer.analyze.evidence.lifetime.variables import line_words
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.lookups import Lookup, is_filled, lookups, parameter_of
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArray, PassedArrays
from pytracer.analyze.evidence.own_code.short_length import ShortLength, short_length
from pytracer.analyze.platform.instruction import signed
from pytracer.analyze.view import ProcessView
from pytracer.report.job import Evidence

_SCALES, _SUMS = (1, 2, 4, 8), 4
_WRAP = 1 << 32
_OF_FLOATS = Pattern(r"\b[xyz]mm\d|\bst\(|\b[sdqv]\d+\b")
_NARROW = {"uint8": 1 << 8, "int8": 1 << 7, "uint16": 1 << 16, "int16": 1 << 15, "uint32": 1 << 32, "int32": 1 << 31}


class _Link(msgspec.Struct, frozen=True):
    """An array, and how its elements are taken."""

    lookup: Lookup
    array: PassedArray

    @property
    def rows(self) -> int | None:
        """So many indices are inside of it; None where a row of it is of an unknown length."""
        if not self.lookup.scaled:
            return self.array.elements
        return self.array.sizes[0] if len(self.array.sizes) > 1 else None


class LookedUp(msgspec.Struct, frozen=True):
    """`table`, indexed by the elements of `by`. `into`: what an element of `table` indexes; None where `table` faulted.

    `wrong`: whether a number of `by` is known to be outside of `table`; False where all are known to be inside.
    `place`: of the native line, `text`: how the source takes the element, `value`: what it calls it. `limit`: what the
    numbers of `by` must be below. `row`: of `table`, at the address. `outside`: a number of `by` that is outside, where
    not all of them were read.
    """

    place: str
    text: str
    value: str
    table: PassedArray
    by: PassedArray
    into: PassedArray | None
    limit: int | None
    wrong: bool | None
    made: tuple[str | None, str | None]
    short: tuple[ShortLength, str] | None
    row: int | None = None
    outside: int | None = None

    @property
    def summary(self) -> str:
        """What a headline ends with."""
        table, by, into = self.table.words, self.by.words, self.into
        of = f" (its length comes from {self.short[0].briefly}, {self.short[1]})" if self.short is not None else ""
        if into is None:
            return f"{table}{of} is indexed by the elements of {by}, {self._reach or 'one of which leads out of it'}"
        if self.wrong is False:
            return f"{self.value} comes from {table}, and does not fit {into.words}"
        fits = self._reach or f"and does not fit {into.words}"
        return f"{self.value} was looked up in {table}{of} by the elements of {by}, {fits}"

    @property
    def _reach(self) -> str | None:
        """`which go up to 5995`, or `down to -1`, where that leads out; `one of which is 5995`."""
        if self.outside is not None:
            return f"one of which is {self.outside}"
        low, high = self.by.low, self.by.high
        if not self.wrong or low is None:
            return None
        return f"which go {f'down to {low}' if low < 0 else f'up to {high}'}"

    @property
    def _takes(self) -> str:
        if self.into is None or self.value == f"`{self.text}`":
            return f"{'takes' if self.into is None else 'indexes by'} `{self.text}`"
        return f"indexes by {self.value} (of `{self.text}`)"

    @property
    def evidence(self) -> Evidence:
        """What the native line reads, and which arrays these are."""
        arrays = [item.words for item in (self.into, self.table, self.by) if item is not None]
        words = f"{self.place} {self._takes} without a check; its arrays are {list_words(arrays)}"
        if self.by.high is not None:
            words += f", the elements of `{self.by.name}` {self.by.low}..{self.by.high}"
        if self.outside is not None:
            words += f"; {self.outside} is among the elements of `{self.by.name}`"
        if self.row is not None:
            words += f"; the address is that of row {self.row} of `{self.table.name}`"
        return Evidence("index", words, tensor=self.table.name, value=self.outside or self.by.high, limit=self.limit)

    @property
    def short_advice(self) -> str | None:
        """Why the array may have too few elements."""
        return self.short[0].advice(self.table.name, self.short[1]) if self.short is not None else None

    def advice(self, view: ProcessView) -> str:
        """Which of both to check or to change, and where they are made."""
        table, by, into = self.table, self.by, self.into
        of_table, of_by = (f", made at {item}," if item else "" for item in self.made)
        inside = f"inside {into.words}" if into is not None else "inside it"
        if self.wrong is False:
            return (
                f"Check the numbers in {table.words}{of_table or ','} with min() and max(): each must be {inside}, and "
                f"{self.place} {self._takes} unchecked. The elements of {by.words} are {by.low}..{by.high}, all "
                f"inside `{table.name}`: what it holds is wrong, such as what an overflow or empty() left there."
            )
        bounds = f"inside 0..{self.limit - 1}" if self.limit is not None else f"inside `{table.name}`"
        short = f" {self.short_advice}" if self.short_advice else ""
        if self.wrong:
            give = f", or give {table.words}{of_table} an element for each of them"
            low, numbers = (
                (by.low, f"which are {by.low}..{by.high}")
                if self.outside is None
                else (self.outside, f"one of which is {self.outside}")
            )
            return (
                f"Keep the elements of {by.words}{of_by or ','} {numbers}, {bounds}"
                f"{give if low is not None and low >= 0 else ''}: {self.place} {self._takes} unchecked.{short}"
            )
        other = f" If they are, check the numbers in `{table.name}`: they must be {inside}." if into is not None else ""
        row = f"; the address is that of its row {self.row}" if self.row is not None else ""
        return (
            f"Check min() and max() of {by.words}{of_by} before {line_words(view)} passes it: they must be {bounds}. "
            f"{table.words}{of_table or ','} has no other elements, and {self.place} {self._takes} "
            f"unchecked{row}.{short}{other}"
        )


def looked_up(view: ProcessView) -> LookedUp | None:
    """None where the source or the arrays are not known, or more than one array may be meant."""
    found = lookups(view)
    if found is None or view.place is None or view.crash is None:
        return None
    arrays = PassedArrays(view)
    paths = [path for item in found.found for path in _paths(item, arrays) if _may_be(view, path)]
    paths = [path for path in paths if _is_exact(view, path[0].array)] or paths
    if any(is_filled(item.lookup) and arrays.is_unset(item.array) for path in paths for item in path[1:]):
        return None  # what lies behind the part that the function filled was never an index
    wrong = [(path, at) for path in paths for at in _wrong(path)[-1:]]
    if wrong:
        meant = {(path[at].array.name, path[at + 1].array.name) for path, at in wrong}
        return _of(view, arrays, found.place, *wrong[0]) if len(meant) == 1 else None
    paths = [path for path in paths if _is_of_type(view, path[0].array)] or paths
    meant_by = {tuple(item.array.name for item in path[:3]) for path in paths}
    return _of(view, arrays, found.place, paths[0], min(len(paths[0]) - 2, 1)) if len(meant_by) == 1 else None


def _of(view: ProcessView, arrays: PassedArrays, place: str, path: Sequence[_Link], at: int) -> LookedUp | None:
    """The array at a place of a path, by the one behind it."""
    table, by = path[at], path[at + 1]
    wrong = _is_wrong(table, by)
    if not by.array.is_integer or (wrong is False and (at == 0 or _is_wrong(path[0], path[1]) is False)):
        return None
    if wrong is None and at == 0 and by.lookup.by:
        return None  # by an array that is not known, which may be the one that is too short
    short = next(filter(None, (short_length(arrays.back, *made) for made in arrays.expressions(table.array))), None)
    return LookedUp(
        place,
        table.lookup.text,
        table.lookup.value,
        table.array,
        by.array,
        path[at - 1].array if at > 0 else None,
        table.rows - table.lookup.offset if table.rows is not None else None,
        wrong,
        (arrays.made_at(table.array), arrays.made_at(by.array)),
        (short, place_of(view, short.file, short.line)) if short is not None else None,
        _row(view, table) if at == 0 else None,
        _outside(table, by),
    )


def _paths(lookup: Lookup, arrays: PassedArrays) -> list[list[_Link]]:
    """An array, the one that it is indexed by, and so on, as far as they are known: of two at least."""
    return [path for path in _ways(lookup, arrays) if len(path) > 1]


def _ways(lookup: Lookup, arrays: PassedArrays) -> list[list[_Link]]:
    parameter = parameter_of(lookup)
    array = arrays.passed(*parameter) if parameter is not None else None
    if array is None:
        return []
    inner = [path for item in lookup.by for path in _ways(item, arrays)]
    return [[_Link(lookup, array), *path] for path in inner or [[]]]


def _is_wrong(table: _Link, by: _Link) -> bool | None:
    """Whether a number of `by` is outside of `table`; None where that is not known."""
    low, high = by.array.low, by.array.high
    if low is None or high is None:
        return True if _outside(table, by) is not None else None
    if low < 0 or high >= _end(table, by):
        return True
    return False if table.rows is not None else None


def _outside(table: _Link, by: _Link) -> int | None:
    """The number that is the farthest outside of `table`, of those that are known where not all were read."""
    some = by.array.some if by.array.low is None else ()
    wrong = [item for item in some if not 0 <= item < _end(table, by)]
    return max(wrong, key=abs, default=None)


def _end(table: _Link, by: _Link) -> int:
    """What its numbers must be below; a loop ends before the number that bounds it."""
    rows = table.rows if table.rows is not None else table.array.elements
    return rows - table.lookup.offset + by.lookup.of_loop


def _wrong(path: Sequence[_Link]) -> list[int]:
    """The arrays of a path that a number is known to lead out of."""
    return [at for at in range(len(path) - 1) if _is_wrong(path[at], path[at + 1])]


# ---- by the address


def _may_be(view: ProcessView, path: Sequence[_Link]) -> bool:
    """Whether the fault may be at an element of the first array: by the kind of access, and by the address."""
    lookup, array = path[0].lookup, path[0].array
    access = view.fault.access if view.fault is not None else None
    if (access == "read" and not lookup.reads) or (access == "write" and not lookup.writes):
        return False
    size, distance = view.instruction.size if view.instruction is not None else None, _distance(view, array)
    if distance % array.nbytes or (size is not None and size < array.nbytes):
        return False
    nbytes = array.elements * array.nbytes
    if 0 <= distance < nbytes or (lookup.moved and -nbytes < distance < 2 * nbytes):
        return False  # so near by a sum, a number that was looked up may have been right
    if any(0 <= distance + wrap < nbytes for wrap in (_WRAP, array.nbytes * _WRAP)):
        return False  # a product in a C int
    width = _NARROW.get(path[1].array.dtype)
    return width is None or path[0].rows is None or abs(distance) <= _SUMS * width * _row_bytes(path[0])


def _is_exact(view: ProcessView, array: PassedArray) -> bool:
    """Whether one register held its address, and another one what was added to it."""
    held = [*data_registers(view.crash).values()] if view.crash is not None else []
    distance = _distance(view, array)
    sums = any(signed(value * scale) == distance for value in held for scale in _SCALES)
    return array.data in held and sums


def _is_of_type(view: ProcessView, array: PassedArray) -> bool:
    """Whether the instruction works on floats where the array has such: they are in registers of their own."""
    text = view.instruction.text if view.instruction is not None else ""
    return bool(_OF_FLOATS.search(text)) != array.is_integer


def _row(view: ProcessView, link: _Link) -> int | None:
    """The row at the address, of an address that is no other one modulo 2^64."""
    known = link.rows is not None and view.place is not None and view.place.kind != "non-canonical"
    return _distance(view, link.array) // _row_bytes(link) if known else None


def _row_bytes(link: _Link) -> int:
    return link.array.nbytes * (math.prod(link.array.sizes[1:]) if link.lookup.scaled else 1)


def _distance(view: ProcessView, array: PassedArray) -> int:
    return signed(view.place.addr - array.data) if view.place is not None else 0
