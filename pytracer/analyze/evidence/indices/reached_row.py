"""An address outside of a tensor as a row of it, and what leads there: an index tensor's values, or a larger tensor.

"Row" is what is counted in the tensor's outermost dimension of more than one element. Nothing here says that the tensor
was meant; who asks knows that by a register or a sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import structs

from pytracer.analyze.address_space.address_info import Formation
from pytracer.analyze.evidence.operators.line_tensors import line_tensors
from pytracer.analyze.evidence.operators.operator import OperatorTensor, counts_in, find_operator
from pytracer.analyze.platform.instruction import signed
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument

_MEANT = ("register", "computed", "exact")  # Place.found
_LEAST_ROW_BYTES = 64  # fewer are a multiple of which any address of a vector instruction is
_LEAST_FACTOR = 2
_MOST_INDEX = 1 << 48
_COUNTS_ONLY = "convert_indices_from_csr_to_coo"  # it fills rows, one after the other, by how many indices they have


class ReachedRow(msgspec.Struct, frozen=True):
    """The address is in row `row` of `data`, which has `rows` rows of `row_bytes` bytes.

    `index`: the tensor of integers that has the number, or values below and above it; None where several have. `seen`:
    the number is its smallest or largest one, or was found in its memory. `ambiguous`: it may as well have counted rows
    of another size. `exact`: the address is the first byte of the row. `larger`: a tensor of the same call that has so
    many rows or elements.
    """

    data: OperatorTensor
    row: int
    rows: int
    row_bytes: int
    exact: bool
    index: OperatorTensor | None = None
    larger: OperatorTensor | None = None
    seen: bool = False
    ambiguous: bool = False
    distance: int = 0  # from the tensor's first byte to the address


def reached_row(view: ProcessView) -> ReachedRow | None:
    """Of the tensor that the access was meant for; None where that is not known, or its shape is not."""
    place = view.place
    if place is None or place.storage is None or place.found not in _MEANT or place.distance_bytes == 0:
        return None
    tensors = line_tensors(view)
    there = [item for item in tensors if item.item.base == place.storage.base and item.item.elements]
    there.sort(key=lambda item: (item.name is None, not item.passed, -item.item.elements))
    if place.formation is not None and place.formation.index_storage is not None:
        return _seen(place.formation, there, tensors)
    operator = find_operator(view)
    ways = [way for data in there for way in _rows(data, place.addr)]
    indexed = [found for way in ways if (found := _indexed(way, tensors)) is not None]
    if indexed and not fills_rows(view):
        return _counted(indexed, ways, counts_in(operator))
    takes_tensors = operator is not None  # other functions are given numbers for the sizes
    return _outgrown(ways[0], tensors) if ways and takes_tensors else next(iter(ways), None)


def fills_rows(view: ProcessView) -> bool:
    """Whether torch was converting a compressed sparse tensor: no index leads a write there, but how many there are."""
    return _COUNTS_ONLY in (view.function or "")


def _seen(
    formation: Formation, there: Sequence[OperatorTensor], tensors: Sequence[OperatorTensor]
) -> ReachedRow | None:
    """By a sum with an element of an index tensor, which says what was counted."""
    base = formation.index_storage.base if formation.index_storage is not None else 0
    index = min(
        (item for item in tensors if item.item.base == base and item.item.is_integer),
        key=lambda item: item.name is None,
        default=None,
    )
    if index is None or not there:
        return None
    data = next((item for item in there if formation.scale in _units(item)), there[0])
    rows = _units(data).get(formation.scale, formation.room)
    return ReachedRow(data, formation.index, rows, formation.scale, formation.exact, index=index, seen=True)


def _counted(indexed: Sequence[ReachedRow], ways: Sequence[ReachedRow], unit: str | None) -> ReachedRow:
    """The one that counts as the operator does; of several that may, the one whose number was seen."""
    if unit == "elements":
        return indexed[-1]
    best = next((way for way in indexed if way.seen), indexed[0])
    units = {way.row_bytes for way in ways if way.data is best.data and _may_count(way, best.index)}
    return best if best.seen or unit == "rows" or len(units) == 1 else structs.replace(best, ambiguous=True)


def _may_count(way: ReachedRow, index: OperatorTensor | None) -> bool:
    """Whether a value of the index leads there, counted so and from anywhere in the tensor: a class of ctc_loss()
    counts elements from those of its step and sample.
    """
    low, high = (index.item.minimum, index.item.maximum) if index is not None else (None, None)
    return low is not None and high is not None and low - way.rows < way.row < high + way.rows


def row_in_range(view: ProcessView) -> ReachedRow | None:
    """By the values of an index tensor alone: the one tensor of the operator in which they lead to the address.

    Only of tensors that the operator itself refers to, and where the index has values beyond the other one's rows.
    """
    place = view.place
    if place is None or place.kind not in ("unmapped", "past-storage", "before-storage"):
        return None
    tensors = [item for item in line_tensors(view) if item.item.how != "held"]
    ways = [
        way
        for data in tensors
        if data.item.elements and view.space.live_around(data.item.base) is not None
        for way in _rows(data, place.addr)
    ]
    found = [
        way
        for row in ways
        if (way := _indexed(row, tensors)) is not None and way.index is not None and _is_telling(way, way.index)
    ]
    bases = {(item.data.item.base, item.index.item.base if item.index is not None else 0) for item in found}
    return _counted(found, ways, counts_in(find_operator(view))) if len(bases) == 1 else None


def _is_telling(way: ReachedRow, index: OperatorTensor) -> bool:
    """Whether the values of the index are no mere data, as in `x + y`, and the other tensor is not what goes with each
    of them: the values of a sparse tensor.
    """
    sizes = way.data.item.sizes
    beside = len(sizes) == 1 and bool(index.item.sizes) and sizes[0] == index.item.sizes[-1]
    return not beside and index.item.sizes != sizes and index.item.base != way.data.item.base


def is_close(way: ReachedRow) -> bool:
    """Whether few addresses would fit: the first byte of a large row, or no value of the index is inside."""
    least = way.index.item.minimum if way.index is not None else None
    return (way.exact and way.row_bytes >= _LEAST_ROW_BYTES) or (least is not None and least >= way.rows)


def _rows(data: OperatorTensor, addr: int) -> Iterator[ReachedRow]:
    """Rows of the first dimension that has more than one, then elements; only where the address is in none of them."""
    begins = data.item.data
    if begins is None:
        return
    distance = signed(addr - begins)
    for nbytes, rows in _units(data).items():
        row, rest = divmod(distance, nbytes)
        if not 0 <= row < rows:
            yield ReachedRow(data, row, rows, nbytes, rest == 0, distance=distance)


def _units(data: OperatorTensor) -> dict[int, int]:
    """Bytes of a row and how many rows there are, then the same of elements."""
    item, units = data.item, dict[int, int]()
    element = item.element_bytes
    if element is None or item.dimensions != len(item.sizes) or not item.sizes:
        return units
    last = len(item.sizes) - 1
    steps = item.steps
    large = [place for place, size in enumerate(item.sizes) if size > 1]
    outer = max(large, key=lambda place: steps[place], default=last)  # of a transposed tensor not the first one
    for place in (outer if outer < last or steps[outer] > 1 else max(last - 1, 0), outer):
        if steps[place] > 0:
            units.setdefault(steps[place] * element, item.sizes[place])
    units.setdefault(element, item.elements)
    return units


def _indexed(way: ReachedRow, tensors: Sequence[OperatorTensor]) -> ReachedRow | None:
    """With the tensor of integers whose values reach so far."""
    reach = [
        item
        for item in tensors
        if item.item.is_integer
        and item.item.base != way.data.item.base
        and item.item.minimum is not None
        and item.item.maximum is not None
        and item.item.minimum <= way.row <= item.item.maximum
        and (way.row in (item.item.minimum, item.item.maximum) or _are_indices(item))
    ]
    if len({item.item.base for item in reach}) > 1:
        reach = [item for item in reach if not _are_offsets(item, tensors)]
    if len({(item.item.minimum, item.item.maximum, item.item.elements) for item in reach}) != 1:
        return None  # a copy that the operator has made of it has the same range
    named = min(reach, key=lambda item: item.name is None)
    return structs.replace(way, index=named, seen=way.row in (named.item.minimum, named.item.maximum))


def _are_indices(item: OperatorTensor) -> bool:
    """Whether the range is one of numbers, not of memory that something else was written into."""
    return max(abs(item.item.minimum or 0), abs(item.item.maximum or 0)) < _MOST_INDEX


def _are_offsets(item: OperatorTensor, tensors: Sequence[OperatorTensor]) -> bool:
    """Whether they count the elements of another tensor of integers, from 0 to all: row pointers of a CSR matrix."""
    counted = [other.item.elements for other in tensors if other.item.is_integer and other.item.base != item.item.base]
    return item.item.minimum == 0 and item.item.maximum is not None and item.item.maximum in counted


def _outgrown(way: ReachedRow, tensors: Sequence[OperatorTensor]) -> ReachedRow:
    """With the tensor that has so many rows, if one has: a loop over it left the other one. Both are arguments."""
    item = way.data.item
    along = way.row_bytes // (item.element_bytes or way.row_bytes)
    large = [
        other
        for other in tensors
        if other.item.base != item.base
        and _is_given(way.data)
        and _is_given(other)
        and (along == 1 or len(other.item.sizes) > 1)
        and other.item.elements >= _LEAST_FACTOR * item.elements
        and 0 <= way.row < _most_rows(other)
        and not _is_along_inner(other, item)
    ]
    best = max(large, key=lambda other: (other.name is not None, other.item.elements), default=None)
    return structs.replace(way, larger=best)


def _is_given(item: OperatorTensor) -> bool:
    """Whether the line passes it: what neither its caller nor a variable refers to is the operator's own, as a result
    is, or something on the way to it.
    """
    return item.passed or item.name is not None


def _is_along_inner(large: OperatorTensor, small: Argument) -> bool:
    """Whether the rows of the large tensor belong to an inner dimension of the small one: packed weights [n, k] and
    their scales [groups, n, 2].
    """
    return bool(large.item.sizes) and large.item.sizes[0] > 1 and large.item.sizes[0] in small.sizes[1:]


def _most_rows(item: OperatorTensor) -> int:
    return math.prod(item.item.sizes[:-1]) if len(item.item.sizes) > 1 else item.item.elements
