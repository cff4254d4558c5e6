"""A tensor that has more elements than its storage has room for: expanded, or windows that overlap.

Native code that is given its data_ptr() and its number of elements goes past the end of the storage.
"""

from __future__ import annotations

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import hex_addr, size_words
from pytracer.analyze.evidence.lifetime.variables import plain_expression, program_frames, variable_of
from pytracer.analyze.evidence.native.fault_function import own_function
from pytracer.analyze.evidence.own_code.passed_memory import held_tensor, passes_strides, pointers
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.lines import names_of_line
from pytracer.analyze.evidence.syntax.names import names_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument, Holder, Storage
from pytracer.report.job import Evidence

_LARGE_BYTES = 1 << 30
_MOST_COUNTED = 0xFFFFFFFF  # elements of a holder
_FIRST_NAME = Pattern(r"^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?")


class Expanded(msgspec.Struct, frozen=True):
    """The variable of the failing line. `strides`: in elements; nothing where they are not known."""

    name: str
    elements: int
    storage: Storage
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int | None  # of all elements in a row
    line: int
    own: bool  # the name is that of the line's function
    backward: bool  # an argument of an autograd.Function's backward()

    @property
    def kind(self) -> str:
        """`expanded`, or of windows that overlap."""
        return "overlaps itself" if self.strides and 0 not in self.strides else "is expanded"

    @property
    def words(self) -> str:
        """For the headline."""
        shape = f" {[*self.sizes]}" if self.sizes else ""
        return (
            f"`{self.name}`{shape} {self.kind}, {self.elements} elements over a storage of "
            f"{size_words(self.storage.nbytes)}"
        )

    def advice(self, writes: bool) -> str:
        """What to do before data_ptr() is taken."""
        strides = f", strides {self.strides}" if self.strides else ""
        summed = self.backward and self.strides and not any(self.strides)
        of_sum = " The gradient of sum() comes so into a backward()." if summed else ""
        how = (
            f"Write `{self.name} = {self.name}.contiguous()` before line {self.line}"
            if self.own
            else "Call .contiguous() on it before its data_ptr() is taken"
        )
        copy = " (the function writes to that copy: go on with it)" if writes else ""
        large = (
            f"; a copy takes {size_words(self.nbytes)}, which only native code that takes strides can do without"
            if self.nbytes is not None and self.nbytes >= _LARGE_BYTES
            else ""
        )
        return (
            f"{self.words}{strides}: native code must not take its data_ptr() for that of {self.elements} numbers "
            f"in a row. {how}{copy}, and so for each tensor whose pointer is given on (is_contiguous() "
            f"tells){large}.{of_sum}"
        )


def expanded_tensor(view: ProcessView, storage: Storage | None) -> Expanded | None:
    """Of the storage that was left; None where the line may also have passed a tensor that fits."""
    frame = next(iter(program_frames(view)), None)
    if storage is None or view.crash is None or frame is None or frame.line is None:
        return None
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or passes_strides(view) or own_function(view) is None:
        return None  # torch's own functions know strides
    scope, named = scope_of(tree, frame.line), names_of_line(tree, frame.line)
    before = [
        name
        for item in named
        for line, value in lines_that_bind(scope, item)
        if value is not None and line < frame.line
        for name in names_of(value)
    ]  # `pointers = [x.data_ptr() for x in tensors]`
    here = [
        item
        for item in view.crash.holders
        if item.base == storage.base and item.frame is not None and item.kind in ("local", "global")
        if (item.frame.file, item.frame.function, item.frame.line) == (frame.file, frame.function, frame.line)
    ]
    held = [item for item in here if _is_named(item, named)] or [item for item in here if _is_named(item, before)]
    if not held or any(not _is_larger(view, item, storage) for item in held):
        return None
    first = min(held, key=lambda item: len(item.expression))
    like = _argument(view, first)
    function = (frame.function or "").rpartition(".")[2]
    name = plain_expression(first.expression)
    outer = variable_of(view, storage.base, first.elements)  # the caller's name of `tensors[0]`
    if "[" in name and outer is not None and "[" not in outer:
        name = outer.partition("`")[2].partition("`")[0]
    return Expanded(
        name,
        like.elements if like is not None else first.elements,
        storage,
        like.sizes if like is not None and like.dimensions == len(like.sizes) else (),
        like.strides if like is not None else (),
        like.elements * each if like is not None and (each := like.element_bytes) is not None else None,
        frame.line,
        plain_expression(first.expression).isidentifier(),
        function == "backward",
    )


def expanded_behind(view: ProcessView) -> Expanded | None:
    """The tensor whose address the line takes, and whose elements would reach the fault address if they lay in a row.

    Another storage may be nearer to that address: native code that counts elements runs over what lies between.
    """
    place = view.place
    if place is None:
        return None
    for name, numpy, _ in pointers(view):
        tensor = held_tensor(view, name) if not numpy else None
        storage = view.space.live_around(tensor.base) if tensor is not None else None
        nbytes = (tensor.elements * (tensor.element_bytes or 0)) if tensor is not None else 0
        if storage is None or not storage.nbytes <= place.addr - storage.base < nbytes:
            continue
        found = expanded_tensor(view, storage)
        if found is not None:
            return found
    return None


def behind_evidence(view: ProcessView, found: Expanded) -> Evidence:
    """How far behind its memory the address is."""
    distance = (view.place.addr if view.place is not None else 0) - found.storage.base - found.storage.nbytes
    reach = f", whose elements would take {size_words(found.nbytes)} in a row" if found.nbytes is not None else ""
    return Evidence(
        "storage",
        f"the address is {size_words(distance)} behind the {size_words(found.storage.nbytes)} of `{found.name}`{reach}",
        base=hex_addr(found.storage.base),
        nbytes=found.storage.nbytes,
        tensor=found.name,
        offset_bytes=distance,
    )


def _is_named(item: Holder, named: list[str]) -> bool:
    """`args[0]` is of `args`, `self.table` that or of `self`."""
    found = _FIRST_NAME.match(plain_expression(item.expression))
    return found is not None and (found[0] in named or found[0].partition(".")[0] in named)


def _is_larger(view: ProcessView, item: Holder, storage: Storage) -> bool:
    like = _argument(view, item)
    each = like.element_bytes if like is not None else None
    return item.elements * (each or 1) > storage.nbytes > 0


def _argument(view: ProcessView, item: Holder) -> Argument | None:
    """The tensor that the variable held, with its sizes."""
    found = [
        other
        for other in (view.crash.arguments if view.crash is not None else ())
        if other.base == item.base and min(other.elements, _MOST_COUNTED) == item.elements and not other.undefined
    ]
    return found[0] if len({(other.sizes, other.strides, other.dtype) for other in found}) == 1 else None
