"""An array that a line of the program laid over memory by a shape and strides of its own, which nothing checks.

numpy.lib.stride_tricks.as_strided() takes any; a view that is larger than the array it is made of reaches what lies
behind. Recorded are the arrays of variables; what a call is given is computed from these, where that can be done.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import capital, count_words, shortened, size_words
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.recorded_arrays import RecordedArrays
from pytracer.analyze.evidence.own_code.stride_orders import StrideOrder, other_order
from pytracer.analyze.evidence.own_code.view_makers import given_strides, held_view, read_by_line, span, strided_call
from pytracer.analyze.evidence.own_code.view_owners import Owner, owner_of, recorded_owner
from pytracer.analyze.evidence.own_code.view_steps import Asked, RowSteps, reads_own_bytes, row_steps, steps_of_rows
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.view import ProcessView

_HOPS, _QUOTED = 8, 44
_ELEMENT_BYTES = (2, 4, 8, 16)
_CHECKS = (
    "as_strided() checks nothing; numpy.lib.stride_tricks.sliding_window_view({0}, size{1}) makes windows, and checks "
    "(`[::n]` of it is every n-th)."
)
_ACCESS_BYTES = 64  # the widest access begins so far before its last byte


class UncheckedView(msgspec.Struct, frozen=True):
    """The fault address is in a view of `owner`, and outside of that. `data`: the first byte of the view.

    `name`: of the variable that holds it. `twice`: a stride in the source that has the bytes of an element twice.
    `recorded`: shape and strides are those of the array itself, and not computed from the source. `given`: the owner,
    as the line has it. `rows`: it steps by rows of its owner, and counts elements. `own_bytes`: its strides are known
    to be made of those of the owner, or of the bytes of its elements. `order`: another one of its strides, which fits.
    """

    owner: Owner
    data: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    name: str | None
    twice: str | None
    file: str | None
    line: int
    recorded: bool
    given: str
    rows: RowSteps | None
    own_bytes: bool
    order: StrideOrder | None = None

    @property
    def reach(self) -> int:
        """Bytes from the first one of the owner to the end of the view."""
        return self.data - self.owner.data + span(self.shape, self.strides)[1] + self.owner.item

    def place(self, view: ProcessView) -> str:
        """`line 28`."""
        return place_of(view, self.file, self.line)

    def summary(self, view: ProcessView) -> str:
        """For the headline."""
        name = f"`{self.name}`, a view" if self.name is not None else "the view"
        comma = "," if self.name is not None else ""
        return (
            f"{name} of `{self.owner.name}` that as_strided() makes at {self.place(view)}{comma} reaches "
            f"{size_words(self.reach)}, and `{self.owner.name}` has {size_words(self.owner.nbytes)}{self._cause(view)}"
        )

    def fact(self, addr: int) -> str:
        """What the address is in the view and behind its owner."""
        beside = (
            f"{addr - self.owner.end} bytes behind"
            if addr >= self.owner.end
            else f"{self.owner.data - addr} bytes before"
        )
        shape, strides, array = list(self.shape), list(self.strides), self.owner.array
        own = f" in shape {[*array.shape]}, strides {[*array.strides]}" if array and len(array.shape) > 1 else ""
        return (
            f"the view has shape {shape} and strides {strides} in bytes, {self.reach} bytes in all; "
            f"`{self.owner.name}` has {self.owner.nbytes}{own}, and the address is {beside} it"
        )

    def _counted(self, view: ProcessView) -> str | None:
        """`` `x.size` (line 12) ``."""
        rows = self.rows
        if rows is None or rows.counted is None:
            return None
        return f"`{shortened(rows.counted, _QUOTED)}` ({place_of(view, rows.file, rows.line)})"

    def _cause(self, view: ProcessView) -> str:
        if self.twice is not None:
            return f"; the stride `{shortened(self.twice, _QUOTED)}` has the bytes of an element twice"
        if self.rows is not None:
            name = f"`{self.owner.name}` {[*self.rows.shape]}"
            counts = f"counts its {self.rows.elements} elements"
            counted = self._counted(view)
            how = f"{counted} {counts}" if counted is not None else counts
            return f"; it steps by the rows of {name}, {self.rows.row_bytes} bytes each, and {how}"
        if self._is_wide:
            return f"; its strides are of elements of {min(self.strides)} bytes, not {self.owner.item}"
        return "; in another order its strides would fit" if self.order is not None else ""

    @property
    def _is_wide(self) -> bool:
        """Whether its strides are those of a type with larger elements, and would fit with its own."""
        least, item, array = min(self.strides), self.owner.item, self.owner.array
        if self.own_bytes or array is None or steps_of_rows(array, self.strides) is not None:
            return False  # a row of a tensor has as many bytes, if it has several dimensions
        if least not in _ELEMENT_BYTES or least <= item or any(step % least for step in self.strides):
            return False
        strides = [step // least * item for step in self.strides]
        return self.data - self.owner.data + span(self.shape, strides)[1] + item <= self.owner.nbytes

    @property
    def _most(self) -> int | None:
        """How many of the first dimension fit; None where that is none, or its stride goes backwards."""
        rest = self.reach - (self.shape[0] - 1) * self.strides[0]
        return (
            (self.owner.nbytes - rest) // self.strides[0] + 1
            if self.strides[0] > 0 and rest <= self.owner.nbytes
            else None
        )

    def advice(self, view: ProcessView) -> str:
        """What to change."""
        at, name, most = self.place(view), self.owner.name, self._most
        if self.twice is not None:
            stride = shortened(self.twice, _QUOTED)
            how = f"Take the element size out of the stride `{stride}` at {at}: `{name}.strides` are in bytes."
        elif self.rows is not None:
            return f"{self._of_rows(self.rows, view)} {_CHECKS.format(name, self._axis)}"
        elif self._is_wide:
            own = f"an element of `{name}` has {self.owner.item} bytes"
            how = f"Use `{self.given}.strides` at {at}, not {self.strides}: {own}."
        elif self.order is not None:
            how = self.order.advice
        else:
            room = f": for these strides `{name}` has {most} of {self.shape[0]} in the first dimension" if most else ""
            how = f"Correct the shape {self.shape} or the strides {self.strides}, in bytes, at {at}{room}."
        return f"{how} {_CHECKS.format(name, self._axis)}"

    @property
    def _axis(self) -> str:
        """What sliding_window_view() needs beside a size, where its array has several dimensions."""
        if self.owner.array is None or len(self.owner.array.shape) == 1:
            return ""
        return ", axis=0" if self.rows is not None and self.rows.any_fits else ", axis=..."

    def _of_rows(self, rows: RowSteps, view: ProcessView) -> str:
        """How to count what it steps by, or to have one dimension only."""
        counted, name, given = self._counted(view), self.owner.name, self.given.removesuffix(".numpy()")
        what = f"{counted} counts" if counted is not None else "its shape counts"
        part = "columns" if rows.any_fits else "rows"
        flat = f"make `{name}` one-dimensional before {self.place(view)} (one of its {part}, or their mean)"
        if not rows.any_fits:
            return f"{capital(flat)}: {what} all its dimensions, and it has {count_words(rows.shape[0], 'row')}."
        meant = f" Where only one dimension is meant, {flat}." if rows.only_rows else ""
        return (
            f"Count rows, by `len({given})` or `{given}.shape[0]`: {what} all dimensions, and a stride of "
            f"{rows.row_bytes} bytes is a whole row.{meant}"
        )


def unchecked_view(view: ProcessView) -> UncheckedView | None:
    """None where no array of the line was made so, where its size is not known, or where it ends before the address."""
    frames, place = program_frames(view), view.place
    back = Slice(view.process.snapshot, frames)
    spot = back.spot(0)
    if spot is None or place is None or view.crash is None:
        return None
    arrays = RecordedArrays(view, back)
    found = {}
    for node in read_by_line(spot):
        strided = strided_call(back, node, spot)
        one = _beyond(view, arrays, *strided) if strided is not None else None
        if one is not None and _holds(one, place.addr):
            found[one.file, one.line] = one
    return next(iter(found.values())) if len(found) == 1 else None


def _beyond(view: ProcessView, arrays: RecordedArrays, node: ast.AST, spot: Spot, made: Made) -> UncheckedView | None:
    """The view, where it is larger than its owner."""
    call = made.node
    if not isinstance(call, ast.Call):
        return None
    words = {item.arg: item.value for item in call.keywords if item.arg}
    first = call.args[0] if call.args else words.get("x")
    given = given_strides(call)
    asked = call.args[1] if len(call.args) > 1 else words.get("shape")
    held = held_view(arrays, node, spot, made)
    nbytes = held.element_bytes if held is not None else None
    owner = owner_of(view, arrays, first, made.spot, nbytes) if first is not None else None
    if owner is None and held is not None:
        owner = recorded_owner(view, held)
    if owner is None:
        return None
    shape, strides = (held.shape, held.strides) if held is not None else (None, None)
    if held is None:
        array = arrays.array(first, made.spot) if first is not None else None
        shape = arrays.sizes(asked, made.spot) if asked is not None else array.shape if array is not None else None
        strides = arrays.sizes(given, made.spot) if given is not None else array.strides if array is not None else None
    if shape is None or strides is None or len(shape) != len(strides) or min(shape, default=0) <= 0:
        return None
    data = held.data if held is not None else owner.data
    own = ast.unparse(first) if first is not None else owner.name
    ask = Asked(asked, own, made.spot) if asked is not None else None
    found = UncheckedView(
        owner,
        data,
        shape,
        strides,
        held.expression if held is not None else None,
        _twice(arrays.back, given, made.spot) if given is not None and owner.item > 1 else None,
        made.spot.file,
        call.lineno,
        held is not None,
        own,
        row_steps(arrays, owner.array, ask, (shape, strides)) if owner.array is not None else None,
        given is not None and reads_own_bytes(arrays, given, made.spot, own, owner.item),
        other_order(view, arrays, made, (shape, strides), owner.item, owner.end - data),
    )
    return found if owner.data <= found.data < owner.end and found.reach > owner.nbytes else None


def _twice(back: Slice, given: ast.AST, spot: Spot) -> str | None:
    """The stride, of several, that is a product in which the bytes of an element come twice, once by `x.strides`."""
    made = back.made(given, spot, calls=True)
    for stride in made.node.elts if isinstance(made.node, (ast.Tuple, ast.List)) else ():
        factors = [*_factors(back, stride, made.spot)]
        strides = sum(1 for part in factors if _is_stride(part))
        if strides and strides + sum(1 for part in factors if _is_size(part)) > 1:
            return ast.unparse(stride)
    return None


def _factors(back: Slice, node: ast.AST, spot: Spot, levels: int = _HOPS) -> Iterator[ast.AST]:
    """Of a product, through variables."""
    made = back.made(node, spot, calls=True) if isinstance(node, ast.Name) else Made(node, spot)
    if isinstance(made.node, ast.BinOp) and isinstance(made.node.op, ast.Mult) and levels:
        yield from _factors(back, made.node.left, made.spot, levels - 1)
        yield from _factors(back, made.node.right, made.spot, levels - 1)
    else:
        yield made.node


def _is_stride(node: ast.AST) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "strides"


def _is_size(node: ast.AST) -> bool:
    return getattr(node, "attr", None) == "itemsize"


def _holds(found: UncheckedView, addr: int) -> bool:
    low, high = span(found.shape, found.strides)
    inside = found.data + low - _ACCESS_BYTES <= addr < found.data + high + found.owner.item + _ACCESS_BYTES
    return inside and not found.owner.data <= addr < found.owner.end
