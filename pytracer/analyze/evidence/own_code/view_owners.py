"""The memory that a view by as_strided() is made of: a recorded array, or the tensor whose numpy() it is."""

from __future__ import annotations

import ast

import msgspec

from pytracer.analyze.evidence.lifetime.variables import plain_expression
from pytracer.analyze.evidence.own_code.recorded_arrays import RecordedArrays
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.parts import python_frame
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import HeldArray, Holder, Storage


class Owner(msgspec.Struct, frozen=True):
    """The memory that a view was made of: `data` to `end`. `item`: bytes of an element.

    `array`: its dimensions, where they are on record.
    """

    name: str
    data: int
    end: int
    item: int
    array: HeldArray | None = None

    @property
    def nbytes(self) -> int:
        """Bytes from its first one on."""
        return self.end - self.data


def owner_of(view: ProcessView, arrays: RecordedArrays, node: ast.AST, spot: Spot, nbytes: int | None) -> Owner | None:
    """By a recorded array, or by the tensor whose numpy() it is. `nbytes`: of an element, where that is known."""
    array = arrays.array(node, spot)
    extent = array.extent if array is not None else None
    if array is not None and extent is not None and array.element_bytes is not None:
        return Owner(array.expression, *extent, array.element_bytes, array)
    made = arrays.back.made(node, spot, calls=True)
    tensor = _numpy_of(made.node)
    if tensor is None:
        return None
    first = arrays.back.made(tensor, made.spot, calls=True)
    for part, at in (
        *first.through,
        (first.node, first.spot),
    ):  # by the caller's variable, where the function has returned
        item = _holder(view, part, at)
        storage = view.space.live_around(item.base) if item is not None else None
        if item is not None and storage is not None:
            return _of_tensor(view, item, ast.unparse(part), storage, nbytes)
    return None


def _of_tensor(view: ProcessView, held: Holder, name: str, storage: Storage, nbytes: int | None) -> Owner | None:
    """With its dimensions, where the handler read them and they are those of the whole storage."""
    end = storage.base + storage.nbytes
    given = view.crash.arguments if view.crash is not None else ()
    found = {
        (item.dtype, item.sizes, item.steps): item.element_bytes
        for item in given
        if not item.undefined and item.base == storage.base and item.offset == 0 and item.elements == held.elements
        if item.dimensions == len(item.sizes) == len(item.steps)
    }
    if len(found) != 1 or held.frame is None:
        return Owner(name, storage.base, end, nbytes) if nbytes is not None else None
    (dtype, sizes, steps), size = found.popitem()
    if size is None or held.elements * size != storage.nbytes:
        return Owner(name, storage.base, end, nbytes) if nbytes is not None else None
    strides = tuple(step * size for step in steps)
    array = HeldArray(name, storage.base, dtype, sizes, strides, held.frame, 0)
    return Owner(name, storage.base, end, size, array)


def recorded_owner(view: ProcessView, held: HeldArray) -> Owner | None:
    """The largest array in a row, with a variable of its own, that has the first byte of the view."""
    found = [
        Owner(item.expression, *extent, item.element_bytes, item)
        for item in (view.crash.arrays if view.crash is not None else ())
        if item.in_a_row and item.element_bytes is not None and (extent := item.extent) is not None
        if extent[0] <= held.data < extent[1] and (item.shape, item.strides) != (held.shape, held.strides)
    ]
    return max(found, key=lambda item: item.nbytes, default=None)


def _numpy_of(node: ast.AST) -> ast.expr | None:
    """`x` of `x.numpy()`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "numpy":
        return None
    return node.func.value if isinstance(node.func.value, (ast.Name, ast.Attribute)) else None


def _holder(view: ProcessView, node: ast.AST, spot: Spot) -> Holder | None:
    """The variable that held the tensor, in the function of the spot."""
    text = ast.unparse(node)
    found = {
        item.base: item
        for item in (view.crash.holders if view.crash is not None else ())
        if item.base and item.frame is not None and plain_expression(item.expression) == text
        if spot.is_of(python_frame(item.frame))
    }
    return found.popitem()[1] if len(found) == 1 else None
