"""Which part of a compressed sparse tensor led an access astray: its plain indices, or the pointers that count them.

Of what was recorded: the integer tensors of the operator with their smallest and largest value, the sizes of the dense
ones, and where the access lay. Intel's kernels work on int32 copies of the indices, which the failing line allocates.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.indices.compressed_facts import (
    WrongPart,
    fault_storage,
    is_of_failing_line,
    is_of_source,
    is_product,
    matrices,
)
from pytracer.analyze.evidence.indices.kept_offsets import kept_offsets
from pytracer.analyze.evidence.indices.part_counts import miscounted_part
from pytracer.analyze.evidence.indices.sparse_source import SparseSource, sparse_source
from pytracer.analyze.evidence.operators.operator import Operator, OperatorTensor, find_operator, runs_sparse
from pytracer.analyze.platform.instruction import signed
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument, Storage

_PLAIN_KINDS = ("csr_tensor", "csc_tensor", "csr_tensor_unsafe")  # those of blocks count otherwise
_WHOLE_NUMBER = Pattern(r"^mov(?:s?xd?|slq)?\s+[re]\w+,")  # into a register for whole numbers
_INDEX_BYTES = (4, 8)


class _Dense(msgspec.Struct, frozen=True):
    """The dense factor that the access was measured from."""

    base: int
    rows: int
    row_bytes: int


def wrong_part(view: ProcessView) -> WrongPart | None:
    """None where no constructor is known, and where no part is seen to be."""
    operator = find_operator(view)
    if operator is None or view.place is None or not runs_sparse(view):
        return None
    source = sparse_source(view)
    if source is None or not source.is_compressed:
        return None
    return miscounted_part(view, operator, source) or _of_product(view, operator, source)


def _of_product(view: ProcessView, operator: Operator, source: SparseSource) -> WrongPart | None:
    """Of a product with a dense matrix."""
    if not is_product(view) or not source.constructor.endswith(_PLAIN_KINDS):
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


# ---- the parts that are recorded


def _roles(operator: Operator, source: SparseSource) -> tuple[list[Argument], list[Argument]]:
    """Integer tensors that may be the pointers, and all others: those that native code had, and those that the
    constructor was given where its function is still running.
    """
    rows = {item.sizes[0] for item in matrices(operator)}
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
    storage, dense = fault_storage(view), matrices(operator)
    if storage is None:
        return None
    for item in dense:
        nbytes = item.element_bytes
        if item.base == storage.base and nbytes is not None and item.offset == 0:
            whole = item.strides in ((), (item.sizes[1], 1)) and storage.nbytes >= item.elements * nbytes
            return _Dense(item.base, item.sizes[0], item.sizes[1] * nbytes) if whole else None
    rows = {item.sizes[1] * (item.element_bytes or 0) for item in dense if item.how != "held"}
    row_bytes = rows.pop() if len(rows) == 1 else 0
    if not row_bytes or storage.nbytes % row_bytes or not is_of_failing_line(view, storage):
        return None
    return _Dense(storage.base, storage.nbytes // row_bytes, row_bytes)


# ---- the pointers, by what was read


def _of_pointers(view: ProcessView, operator: Operator, source: SparseSource) -> WrongPart | None:
    """Where a single index was read behind the copy of the plain indices, or one of the values behind these.

    The kernel takes the entry to read from the pointers alone.
    """
    storage, instruction = fault_storage(view), view.instruction
    if storage is None or instruction is None or instruction.size not in _INDEX_BYTES or view.place is None:
        return None
    if storage.base in {item.base for item in matrices(operator)}:
        return None
    count, size = storage.nbytes // instruction.size, instruction.size
    entry = signed(view.place.addr - storage.base) // size
    rows = {item.sizes[0] for item in matrices(operator) if item.how != "held"}
    if entry < count or not rows or count - 1 in rows:
        return None
    is_index = bool(_WHOLE_NUMBER.match(instruction.text)) and is_of_failing_line(view, storage)
    if not is_index and not _has_twin(view, source, storage, count):
        return None
    return WrongPart("pointers", source, None, None, count, entry=entry)


def _has_twin(view: ProcessView, source: SparseSource, storage: Storage, count: int) -> bool:
    """Whether it, and another storage with as many elements, were allocated where the sparse tensor was made."""
    own = [item for item in view.process.snapshot.storages if item.state == "live" and is_of_source(source, item)]
    alike = [item for item in own if item.nbytes in {count * size for size in _INDEX_BYTES}]
    return storage in own and len(alike) > 1


def _is_own(view: ProcessView, source: SparseSource, item: Argument) -> bool:
    """Whether its memory was allocated by the failing line, for a copy, or where the sparse tensor was made."""
    storage = view.space.live_around(item.base)
    return storage is not None and (is_of_failing_line(view, storage) or is_of_source(source, storage))
