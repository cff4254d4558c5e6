"""A compressed sparse tensor whose parts do not count the same: too few values, or pointers that end elsewhere.

There must be a value for each plain index, and the pointers must end at the number of these. torch's conversions take
that number from the values, and fill the last row up to it; Intel's products take it from the pointers, and read as
many values. The sizes are those of the tensors that the operator itself refers to. What the failing line allocated is
the operator's own: a result, or something on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pytracer.analyze.evidence.indices.compressed_facts import (
    WrongPart,
    fault_storage,
    is_of_failing_line,
    is_product,
    matrices,
)
from pytracer.analyze.evidence.indices.part_origins import part_origin
from pytracer.analyze.evidence.indices.sparse_source import SparseSource
from pytracer.analyze.evidence.lifetime.where_made import own_line
from pytracer.analyze.evidence.operators.operator import Operator, OperatorTensor, below_python
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument, Storage

_CONVERSION = "convert_indices_from_csr_to_coo"
_SPARSE = "sparse_compressed_to_dense"
_COORDINATES = 2  # rows of the result of a conversion


class _Parts(NamedTuple):
    """Elements of the pointers, where they end, and how many plain indices there are."""

    pointers: int
    end: int
    plain: int


def miscounted_part(view: ProcessView, operator: Operator, source: SparseSource) -> WrongPart | None:
    """None where the parts fit, and where not all are known that would have to."""
    if is_product(view):
        parts = _parts(_given(view, operator, copies=True))
        count = _accessed_values(view, operator, source) if parts is not None else None
        return _values(source, parts, count) if parts is not None and count is not None else None
    if view.crash is None or not any(_CONVERSION in (item.function or "") for item in view.crash.native_stack[:1]):
        return None
    given = _given(view, operator, copies=False)
    parts = _parts(given)
    if parts is None:
        return _pointers(view, operator, source, given)
    count = _converted_values(view, operator, source)
    return _values(source, parts, count) if count is not None else None


def _values(source: SparseSource, parts: _Parts, count: int) -> WrongPart | None:
    if count >= parts.plain:
        return None
    return WrongPart("values", source, None, None, parts.plain, count=count, rows=parts.pointers - 1)


# ---- the integer tensors


def _given(view: ProcessView, operator: Operator, *, copies: bool) -> list[Argument]:
    """Those in one dimension that native code refers to; `copies`: also of the failing line, for a kernel's int32."""
    return [
        item.item
        for item in operator.tensors
        if item.item.is_integer and item.item.how != "held" and _length(item.item) is not None
        if (copies and item.item.dtype == "int32") or not _is_made_here(view, item.item)
    ]


def _parts(given: Sequence[Argument]) -> _Parts | None:
    """The only two of which one counts the other, from 0 to all: pointers and plain indices."""
    lengths = {item.base: length for item in given if (length := _length(item)) is not None}
    found = {
        _Parts(lengths[item.base], item.maximum, length)
        for item in given
        for base, length in lengths.items()
        if base != item.base and item.minimum == 0 and item.maximum is not None and item.maximum == length
    }
    return found.pop() if len(found) == 1 else None


def _pointers(
    view: ProcessView, operator: Operator, source: SparseSource, given: Sequence[Argument]
) -> WrongPart | None:
    """Pointers that end beyond the plain indices: a conversion is given both, and its result has room for these."""
    room = {
        item.item.sizes[1]
        for item in operator.tensors
        if item.item.is_integer and len(item.item.sizes) == _COORDINATES and item.item.sizes[0] == _COORDINATES
        if item.item.how != "held" and _is_made_here(view, item.item)
    }
    if len({item.base for item in given}) != _COORDINATES or len(room) != 1:
        return None
    count = room.pop()
    ends = {
        (item.minimum, item.maximum) for item in given if _length(item) != count and not _is_overwritten(view, item)
    }
    low, high = ends.pop() if len(ends) == 1 else (None, None)
    if low is None or high is None or high <= count or not any(_length(item) == count for item in given):
        return None
    return WrongPart("pointers", source, low, high, count)


def _is_overwritten(view: ProcessView, item: Argument) -> bool:
    """Whether it lies between the tensor that was left and the fault."""
    storage = view.place.storage if view.place is not None else None
    return view.place is None or (storage is not None and storage.base < item.base <= view.place.addr)


def _length(item: Argument) -> int | None:
    """Of a tensor in one dimension, also as a batch of one."""
    sizes = item.sizes[1:] if len(item.sizes) > 1 and item.sizes[0] == 1 else item.sizes
    return sizes[0] if len(sizes) == 1 and sizes[0] else None


# ---- the values


def _converted_values(view: ProcessView, operator: Operator, source: SparseSource) -> int | None:
    """How many the conversion to a dense tensor has: the only tensor of its frame that is not of the failing line."""
    crash = view.crash
    frames = below_python(crash.native_stack) if crash is not None else []
    place = next((at for at, name in enumerate(frames) if _SPARSE in name), None)
    found = {
        _first_size(item.item)
        for item in _others(operator)
        if place is not None and item.item.frame == place and _is_of(item, source)
        if not _is_made_here(view, item.item)
    }
    return found.pop() if len(found) == 1 else None


def _first_size(item: Argument) -> int:
    """As a batch of one, how the conversion sees them."""
    return item.sizes[1] if len(item.sizes) > 1 and item.sizes[0] == 1 else item.sizes[0]


def _others(operator: Operator) -> Iterator[OperatorTensor]:
    for item in operator.tensors:
        if not item.item.is_integer and not item.item.undefined and item.item.sizes and item.item.how != "held":
            yield item


def _is_of(item: OperatorTensor, source: SparseSource) -> bool:
    """Whether no other variable has it."""
    return item.name is None or source.values is None or item.name.split(".")[-1] in source.values


def _accessed_values(view: ProcessView, operator: Operator, source: SparseSource) -> int | None:
    """How many numbers of the product's type the memory has that was left, where the tensor's values were made."""
    storage = fault_storage(view)
    overrun = view.place.overrun if view.place is not None else None
    storage = storage or (overrun.storage if overrun is not None and not overrun.downwards else None)
    dense = [item for item in matrices(operator) if item.how != "held"]
    nbytes = {item.element_bytes for item in dense}
    size = nbytes.pop() if len(nbytes) == 1 else None
    if storage is None or size is None or view.place is None or storage.base in {item.base for item in dense}:
        return None
    beyond = view.place.addr >= storage.base + storage.nbytes
    return storage.nbytes // size if beyond and _is_of_values(view, source, storage) else None


def _is_of_values(view: ProcessView, source: SparseSource, storage: Storage) -> bool:
    """Whether it was allocated by the line that computes the values; no other of the tensor's parts was."""
    if source.values is None or is_of_failing_line(view, storage):
        return False
    origins = [part_origin(view, source, text, through_files=False) for text in (source.values, *source.indices)]
    lines = [
        (item.spot.file, item.spot.line) if item is not None else (source.spot.file, source.line) for item in origins
    ]
    frame = own_line(storage.allocated_by)
    return frame is not None and (frame.file, frame.line) == lines[0] and lines[0] not in lines[1:]


def _is_made_here(view: ProcessView, item: Argument) -> bool:
    """Whether the failing line allocated it, or nothing is known of its memory."""
    storage = view.space.live_around(item.base)
    return storage is None or is_of_failing_line(view, storage)
