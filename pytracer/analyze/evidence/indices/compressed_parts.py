"""Which part of a compressed sparse tensor led an access astray: its plain indices, or the pointers that count them.

Of what was recorded: the integer tensors of the operator with their smallest and largest value, the sizes of the dense
ones, and where the access lay. Intel's kernels work on int32 copies of the indices, which the failing line allocates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.address_space.referrers import data_registers
from pytracer.analyze.evidence.indices.kept_offsets import kept_offsets
from pytracer.analyze.evidence.indices.sparse_source import SparseSource, sparse_source
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import own_line
from pytracer.analyze.evidence.operators.operator import Operator, OperatorTensor, find_operator, runs_sparse
from pytracer.analyze.platform.instruction import signed
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument, Storage

_PLAIN_KINDS = ("csr_tensor", "csc_tensor", "csr_tensor_unsafe")  # those of blocks count otherwise
_PRODUCTS = Pattern(r"^mkl_sparse_\w+_cs[rc]_\w*mm_")
_WHOLE_NUMBER = Pattern(r"^mov(?:s?xd?|slq)?\s+[re]\w+,")  # into a register for whole numbers
_INDEX_BYTES = (4, 8)
_MATRIX = 2  # dimensions

Part = Literal["indices", "pointers"]


class WrongPart(msgspec.Struct, frozen=True):
    """`low` and `high`: the smallest and the largest value of the part, where they are recorded.

    `limit`: what plain indices must be below, and what pointers must end at; None where that is not known.
    `entry`: of pointers whose values are not, the entry that was read, counted from 0.
    `exact`: the values are recorded, of memory that is surely this tensor's, and lead out of what was accessed.
    """

    part: Part
    source: SparseSource
    low: int | None
    high: int | None
    limit: int | None
    entry: int | None = None
    exact: bool = False


class _Dense(msgspec.Struct, frozen=True):
    """The dense factor that the access was measured from."""

    base: int
    rows: int
    row_bytes: int


def wrong_part(view: ProcessView) -> WrongPart | None:
    """Of a product with a dense matrix; None where no constructor is known, and where neither part is seen to be."""
    operator = find_operator(view)
    if operator is None or view.place is None or not runs_sparse(view) or not _is_product(view):
        return None
    source = sparse_source(view)
    if source is None or not source.is_compressed or not source.constructor.endswith(_PLAIN_KINDS):
        return None
    if kept_offsets(operator) is not None:
        return None
    pointers, plain = _roles(operator, source)
    entries = {item.elements for item in plain}
    last = max((item.maximum or 0 for item in pointers), default=0)
    if pointers and len(entries) == 1 and last > max(entries):
        read = _of_pointers(view, operator, source)
        return WrongPart("pointers", source, 0, last, max(entries), exact=read is not None)
    return _of_indices(view, operator, plain, source) or _of_pointers(view, operator, source)


def _is_product(view: ProcessView) -> bool:
    return view.crash is not None and any(_PRODUCTS.match(item.function or "") for item in view.crash.native_stack[:2])


# ---- the parts that are recorded


def _roles(operator: Operator, source: SparseSource) -> tuple[list[Argument], list[Argument]]:
    """Integer tensors that may be the pointers, and all others: those that native code had, and those that the
    constructor was given where its function is still running.
    """
    rows = {item.sizes[0] for item in _matrices(operator)}
    given = source.indices if source.spot.depth is not None else ()
    known = [
        item
        for item in operator.tensors
        if item.item.is_integer and item.item.dimensions == 1 and item.item.elements and item.item.minimum is not None
        if item.item.how != "held" or item.name in given
    ]
    pointers = [item for item in known if _may_count(item, rows, given)]
    return [item.item for item in pointers], [item.item for item in known if item not in pointers]


def _may_count(item: OperatorTensor, rows: set[int], given: Sequence[str]) -> bool:
    if item.name in given:
        return item.name == given[0]
    return item.item.elements - 1 in rows and item.item.minimum == 0


def _matrices(operator: Operator) -> list[Argument]:
    """The dense ones: a factor, and the result."""
    found = (item.item for item in operator.tensors)
    return [item for item in found if not item.is_integer and not item.undefined and len(item.sizes) == _MATRIX]


def _of_indices(
    view: ProcessView, operator: Operator, plain: Sequence[Argument], source: SparseSource
) -> WrongPart | None:
    """Plain indices that are recorded and go beyond the rows of the dense factor."""
    dense = _dense(view, operator)
    ranges = {(item.elements, item.minimum, item.maximum) for item in plain}
    if dense is None or len(ranges) != 1 or view.place is None:
        return None
    _, low, high = ranges.pop()
    if low is None or high is None or (low >= 0 and high < dense.rows):
        return None
    own = any(_is_own(view, source, item) for item in plain)  # which row it was is not: products of 32 bits wrap
    return WrongPart("indices", source, low, high, dense.rows, exact=own)


def _dense(view: ProcessView, operator: Operator) -> _Dense | None:
    """A matrix whose rows lie one behind the other; one without a variable, where the failing line itself made it."""
    storage, matrices = _storage(view), _matrices(operator)
    if storage is None:
        return None
    for item in matrices:
        nbytes = item.element_bytes
        if item.base == storage.base and nbytes is not None and item.offset == 0:
            whole = item.strides in ((), (item.sizes[1], 1)) and storage.nbytes >= item.elements * nbytes
            return _Dense(item.base, item.sizes[0], item.sizes[1] * nbytes) if whole else None
    rows = {item.sizes[1] * (item.element_bytes or 0) for item in matrices if item.how != "held"}
    row_bytes = rows.pop() if len(rows) == 1 else 0
    if not row_bytes or storage.nbytes % row_bytes or not _is_of_failing_line(view, storage):
        return None
    return _Dense(storage.base, storage.nbytes // row_bytes, row_bytes)


# ---- the pointers, by what was read


def _of_pointers(view: ProcessView, operator: Operator, source: SparseSource) -> WrongPart | None:
    """Where a single index was read behind the copy of the plain indices, or one of the values behind these.

    The kernel takes the entry to read from the pointers alone.
    """
    storage, instruction = _storage(view), view.instruction
    if storage is None or instruction is None or instruction.size not in _INDEX_BYTES or view.place is None:
        return None
    if storage.base in {item.base for item in _matrices(operator)}:
        return None
    count, size = storage.nbytes // instruction.size, instruction.size
    entry = signed(view.place.addr - storage.base) // size
    rows = {item.sizes[0] for item in _matrices(operator) if item.how != "held"}
    if entry < count or not rows or count - 1 in rows:
        return None
    is_index = bool(_WHOLE_NUMBER.match(instruction.text)) and _is_of_failing_line(view, storage)
    if not is_index and not _has_twin(view, source, storage, count):
        return None
    return WrongPart("pointers", source, None, None, count, entry=entry)


def _has_twin(view: ProcessView, source: SparseSource, storage: Storage, count: int) -> bool:
    """Whether it, and another storage with as many elements, were allocated where the sparse tensor was made."""
    own = [item for item in view.process.snapshot.storages if item.state == "live" and _is_of_source(source, item)]
    alike = [item for item in own if item.nbytes in {count * size for size in _INDEX_BYTES}]
    return storage in own and len(alike) > 1


def _is_own(view: ProcessView, source: SparseSource, item: Argument) -> bool:
    """Whether its memory was allocated by the failing line, for a copy, or where the sparse tensor was made."""
    storage = view.space.live_around(item.base)
    return storage is not None and (_is_of_failing_line(view, storage) or _is_of_source(source, storage))


def _is_of_source(source: SparseSource, storage: Storage) -> bool:
    frame, scope = own_line(storage.allocated_by), source.spot.scope
    first, last = getattr(scope, "lineno", source.line), getattr(scope, "end_lineno", None) or source.line
    return frame is not None and frame.file == source.spot.file and first <= (frame.line or 0) <= last


# ---- where the access was measured from


def _storage(view: ProcessView) -> Storage | None:
    """That a register pointed into, or whose sum with a number is the address; never the nearest one alone."""
    place = view.place
    if place is None:
        return None
    if place.formation is not None:
        return place.formation.storage
    if place.storage is not None and (place.register is not None or _is_held(view, place.storage)):
        return place.storage
    return None


def _is_held(view: ProcessView, storage: Storage) -> bool:
    return view.crash is not None and storage.base in data_registers(view.crash).values()


def _is_of_failing_line(view: ProcessView, storage: Storage) -> bool:
    frame, failing = own_line(storage.allocated_by), next(iter(program_frames(view)), None)
    known = frame is not None and failing is not None
    return known and frame is not None and (frame.file, frame.line) == (failing.file, failing.line)  # type: ignore[union-attr]
