"""By what an unchecked view of an array steps, and what its shape counts: by rows, but elements, in the known mistake.

`x.strides[0]` has the bytes of a row, and `x.size` counts the elements of all dimensions. Both agree where the array
has one dimension; of a recording with two channels a view made of both has twice as many rows as there are.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence

import msgspec

from pytracer.analyze.evidence.own_code.recorded_arrays import RecordedArrays
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.decode.types.snapshot import HeldArray

_LEVELS = 8
_BYTES_OF = ("strides", "itemsize")


class RowSteps(msgspec.Struct, frozen=True):
    """A view steps by the rows of an array of several dimensions, and by more of them than there are.

    `counted`: `x.size`, which its shape is made of, with its place; None where the numbers alone show that. `any_fits`:
    whether one of its first dimension has room in these rows. `only_rows`: no stride is less than one.
    """

    shape: tuple[int, ...]
    row_bytes: int
    any_fits: bool
    only_rows: bool
    counted: str | None
    file: str | None
    line: int

    @property
    def places(self) -> tuple[tuple[str | None, int], ...]:
        """The line that counts."""
        return ((self.file, self.line),) if self.counted is not None else ()

    @property
    def elements(self) -> int:
        """Of the array."""
        return math.prod(self.shape)


class Asked(msgspec.Struct, frozen=True):
    """A shape, as the source has it at `spot`, and the array that it is for."""

    shape: ast.AST
    array: str
    spot: Spot


def row_steps(
    arrays: RecordedArrays, owner: HeldArray, asked: Asked | None, view: tuple[Sequence[int], ...]
) -> RowSteps | None:
    """None unless the first stride, or all, are whole rows of `owner`, and its elements are what was counted.

    Args:
        arrays: Those on record.
        owner: What the view is made of.
        asked: The shape; None where the source shows none.
        view: Shape and strides of the view, in bytes.
    """
    shape, strides = view
    row, elements = _row_bytes(owner), math.prod(owner.shape)
    if row is None or len(shape) != len(strides) or strides[0] <= 0 or strides[0] % row:
        return None
    steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    rows = sum(steps) // row + 1
    if not owner.shape[0] < rows <= elements:
        return None
    found = next(_counted(arrays, owner, asked), None) if asked is not None else None
    by_rows_alone = steps_of_rows(owner, strides) is not None
    if found is None and (not by_rows_alone or rows + strides[0] // row <= elements):
        return None  # one more would have had room: it is not by these that they were counted
    node, spot = found if found is not None else (None, None)
    return RowSteps(
        owner.shape,
        row,
        rows - steps[0] // row <= owner.shape[0],
        by_rows_alone,
        ast.unparse(node) if node is not None else None,
        spot.file if spot is not None else None,
        getattr(node, "lineno", 0),
    )


def steps_of_rows(owner: HeldArray, strides: Sequence[int]) -> int | None:
    """The bytes of a row, where the array has several dimensions and the least stride is one."""
    row = _row_bytes(owner)
    return row if row is not None and row == min(strides) and not any(step % row for step in strides) else None


def _row_bytes(owner: HeldArray) -> int | None:
    if len(owner.shape) < 2 or math.prod(owner.shape[1:]) < 2 or not owner.strides:
        return None
    return owner.strides[0] if owner.strides[0] > 0 else None


def reads_own_bytes(arrays: RecordedArrays, given: ast.AST, spot: Spot, first: str, item: int) -> bool:
    """Whether strides are made of the bytes that the array itself has, so that they are of no other type.

    `first`: the array, as the call has it. `item`: bytes of an element.
    """
    for node, at in _parts(arrays.back, given, spot):
        if not isinstance(node, ast.Attribute) or node.attr not in _BYTES_OF:
            continue
        array = arrays.array(node.value, at)
        if ast.unparse(node.value) == first or (array is not None and array.element_bytes == item):
            return True
    return False


def _counted(arrays: RecordedArrays, owner: HeldArray, asked: Asked) -> Iterator[tuple[ast.expr, Spot]]:
    """`x.size`, `np.size(x)`, `math.prod(x.shape)`, `x.numel()` of the array, in what a shape is made of."""
    shape = asked.shape.elts[0] if isinstance(asked.shape, (ast.Tuple, ast.List)) and asked.shape.elts else asked.shape
    for node, at in _parts(arrays.back, shape, asked.spot):
        of = _of_all(node)
        if of is None or not isinstance(node, ast.expr):
            continue
        array = arrays.array(of, at)
        same = at.scope is asked.spot.scope and ast.unparse(of) == asked.array.removesuffix(".numpy()")
        if same or (array is not None and (array.data, array.shape) == (owner.data, owner.shape)):
            yield node, at


def _of_all(node: ast.AST) -> ast.expr | None:
    if isinstance(node, ast.Attribute):
        return node.value if node.attr == "size" else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called_name(node) == "numel":
        return node.func.value
    if not isinstance(node, ast.Call) or len(node.args) != 1 or node.keywords:
        return None
    given, called = node.args[0], called_name(node)
    if called == "size" and isinstance(node.func, ast.Attribute):
        return given
    return given.value if called == "prod" and isinstance(given, ast.Attribute) and given.attr == "shape" else None


def _parts(back: Slice, node: ast.AST, spot: Spot, levels: int = _LEVELS) -> Iterator[tuple[ast.AST, Spot]]:
    """Each expression inside, through variables and what functions return."""
    for part in nodes_of(node):
        yield part, spot
        if isinstance(part, (ast.Name, ast.Call)) and levels:
            made = back.made(part, spot, calls=True)
            if made.node is not part:
                yield from _parts(back, made.node, made.spot, levels - 1)
