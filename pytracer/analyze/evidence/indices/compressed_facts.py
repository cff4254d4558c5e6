"""What the parts of a compressed sparse tensor are told by: where their memory was allocated, and what was accessed."""

from __future__ import annotations

from typing import Literal

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.address_space.referrers import data_registers
from pytracer.analyze.evidence.indices.sparse_source import SparseSource
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import own_line
from pytracer.analyze.evidence.operators.operator import Operator
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument, Storage

_PRODUCTS = Pattern(r"^mkl_sparse_\w+_cs[rc]_\w*mm_")
_MATRIX = 2  # dimensions

Part = Literal["indices", "pointers", "values"]


class WrongPart(msgspec.Struct, frozen=True):
    """`low` and `high`: the smallest and the largest value of the part, where they are recorded.

    `limit`: what plain indices must be below, and what pointers must end at; None where that is not known.
    Of values, `limit` is how many there must be, one for each index, and `count` how many there are; `rows`: how many
    rows (of CSC columns) the pointers count. `entry`: of pointers whose values are not known, the entry that was read,
    counted from 0.
    `exact`: the values are recorded, of memory that is surely this tensor's, and lead out of what was accessed.
    """

    part: Part
    source: SparseSource
    low: int | None
    high: int | None
    limit: int | None
    entry: int | None = None
    exact: bool = False
    count: int | None = None
    rows: int | None = None


def is_product(view: ProcessView) -> bool:
    """Whether it was in Intel's product of a compressed sparse tensor with a dense matrix."""
    return view.crash is not None and any(_PRODUCTS.match(item.function or "") for item in view.crash.native_stack[:2])


def matrices(operator: Operator) -> list[Argument]:
    """The dense ones: a factor, and the result."""
    found = (item.item for item in operator.tensors)
    return [item for item in found if not item.is_integer and not item.undefined and len(item.sizes) == _MATRIX]


def is_of_source(source: SparseSource, storage: Storage) -> bool:
    """Whether it was allocated in the function that calls the constructor."""
    frame, scope = own_line(storage.allocated_by), source.spot.scope
    first, last = getattr(scope, "lineno", source.line), getattr(scope, "end_lineno", None) or source.line
    return frame is not None and frame.file == source.spot.file and first <= (frame.line or 0) <= last


def fault_storage(view: ProcessView) -> Storage | None:
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


def is_of_failing_line(view: ProcessView, storage: Storage) -> bool:
    """Whether the line that fails allocated it."""
    frame, failing = own_line(storage.allocated_by), next(iter(program_frames(view)), None)
    known = frame is not None and failing is not None
    return known and frame is not None and (frame.file, frame.line) == (failing.file, failing.line)  # type: ignore[union-attr]
