"""The numbers of an argument by what it was made of, where its own memory was overwritten before it was recorded.

`index` is what `torch.sort(col)` returns for `row, col = edge_index`: the numbers of `edge_index` are recorded.
"""

from __future__ import annotations

import ast
from dataclasses import replace

import msgspec
from msgspec import structs

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.lifetime.variables import program_frames, python_frames
from pytracer.analyze.evidence.operators.operator import shape_words
from pytracer.analyze.evidence.operators.overwritten_operands import may_be_overwritten
from pytracer.analyze.evidence.preconditions.call import BoundCall, given_of
from pytracer.analyze.evidence.preconditions.terms import Given
from pytracer.analyze.evidence.slicing.bindings import last_binding
from pytracer.analyze.evidence.slicing.elements import KEEP_ALL, SORTS
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.scopes import is_parameter
from pytracer.analyze.naming import line_in
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument

_HOPS = 12
_MODULES = ("torch", "np", "numpy")


class Origin(msgspec.Struct, frozen=True):
    """`given` is what an argument was made of, at `place`; `index`: it is that row of it. None: it is all of it."""

    given: Given
    place: str
    index: int | None

    @property
    def words(self) -> str:
        """`` `edge_index[1]` (line 37) ``."""
        name = self.given.name.strip("`")
        return f"`{name}[{self.index}]` ({self.place})" if self.index is not None else f"`{name}` ({self.place})"

    @property
    def numbers(self) -> str:
        """`` `edge_index` [2, 20000] holds 0..10002499 ``."""
        tensor = self.given.tensor
        if tensor is None:
            return ""
        return f"{self.given.name} {shape_words(tensor)} holds {tensor.minimum}..{tensor.maximum}"


def with_numbers_of_origin(view: ProcessView, call: BoundCall) -> BoundCall:
    """The call with the numbers that its overwritten arguments had, as far as these are known; else without."""
    given = dict(call.given)
    for name, item in call.given.items():
        tensor = item.tensor
        if tensor is None or tensor.minimum is None or not may_be_overwritten(view, tensor):
            continue
        found = origin(view, item)
        low, high = _range(view, found, tensor) if found is not None else (None, None)
        known = structs.replace(item, tensor=replace(tensor, minimum=low, maximum=high), overwritten=True)
        given[name] = structs.replace(known, origin=found.words, holds=found.numbers) if found is not None else known
    return replace(call, given=given)


def origin(view: ProcessView, item: Given) -> Origin | None:
    """The nearest variable that it has its numbers from, and whose own were recorded and are as they were."""
    back = Slice(view.process.snapshot, program_frames(view))
    place, index = back.spot(0), None
    node: ast.expr = ast.parse(item.name.strip("`"), mode="eval").body
    for _ in range(_HOPS):
        if place is None:
            return None
        node, row = _unwrapped(node)
        name = variable(node)
        if name is None or (row is not None and index is not None):
            return None
        index = index if row is None else row
        found = _recorded(view, node, place)
        if found is not None and found.base != item.base:
            return Origin(found, line_in(place.file, place.line, program_frames(view)[0].file), index)
        step = _step(back, name, place)
        if step is None:
            return None
        node, place, row = step
        if row is not None and index is not None:
            return None
        index = index if row is None else row
    return None


def _step(back: Slice, name: str, spot: Spot) -> tuple[ast.expr, Spot, int | None] | None:
    """What was bound to a name, or passed for it, and which row of that."""
    last = last_binding(spot.scope, name, spot.line)
    if last is None:
        passed = back.argument(name, spot) if is_parameter(spot.scope, name) else None
        return (passed[0], passed[1], None) if passed is not None and isinstance(passed[0], ast.expr) else None
    line, value, place = last
    there = structs.replace(spot, line=line)
    if not isinstance(value, ast.expr):
        return None
    if place is None:
        return value, there, None
    if isinstance(value, (ast.Tuple, ast.List)):
        return value.elts[place], there, None
    if isinstance(value, ast.Call):
        return (value, there, None) if called_name(value) in SORTS and place == 0 else None
    return value, there, place  # a tensor is a tuple of its rows


def _unwrapped(node: ast.expr) -> tuple[ast.expr, int | None]:
    """`edge_index` and 1 of `edge_index[1].contiguous()`; of what keeps not all numbers, the expression itself."""
    row: int | None = None
    while True:
        if isinstance(node, ast.Call) and called_name(node) in (KEEP_ALL | SORTS):
            func = node.func
            owner = func.value if isinstance(func, ast.Attribute) and variable(func.value) not in _MODULES else None
            inner = owner if owner is not None else (node.args[0] if node.args else None)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and row is None:
            of_sort = isinstance(node.value, ast.Call) and called_name(node.value) in SORTS
            at = node.slice.value if isinstance(node.slice.value, int) else None
            inner = node.value if at is not None and (not of_sort or at == 0) else None
            row = at if inner is not None and not of_sort else row
        else:
            inner = None
        if inner is None:
            return node, row
        node = inner


def _recorded(view: ProcessView, node: ast.expr, spot: Spot) -> Given | None:
    """What the variable holds, if it is recorded, not overwritten, and not bound again since."""
    frames = [item for item in python_frames(view) if not is_library_file(item.file)]
    frame = frames[spot.depth] if spot.depth is not None and spot.depth < len(frames) else None
    name = variable(node)
    if frame is None or frame.line is None or name is None:
        return None
    if last_binding(spot.scope, name, spot.line) != last_binding(spot.scope, name, frame.line):
        return None
    found = given_of(view, frame, node)
    tensor = found.tensor if found is not None else None
    known = tensor is not None and tensor.minimum is not None and not may_be_overwritten(view, tensor)
    return found if known else None


def _range(view: ProcessView, found: Origin, of: Argument) -> tuple[int | None, int | None]:
    """The smallest and the largest number; of a row, where that of no other row is as small or large."""
    whole = found.given.tensor
    if whole is None:
        return None, None
    if found.index is None:
        return (whole.minimum, whole.maximum) if whole.elements == of.elements else (None, None)
    rows, others = whole.sizes[0] if whole.sizes else 0, []
    for at in range(rows):
        if at == found.index % rows:
            continue
        row = _row(view, whole, at)
        if row is None:
            return None, None
        others.append(row)
    low = whole.minimum if all((item.minimum or 0) > (whole.minimum or 0) for item in others) else None
    high = whole.maximum if all((item.maximum or 0) < (whole.maximum or 0) for item in others) else None
    return low, high


def _row(view: ProcessView, whole: Argument, at: int) -> Argument | None:
    """A recorded tensor that is that row."""
    step = whole.strides[0] if whole.strides else None
    for item in view.crash.arguments if view.crash is not None and step is not None else ():
        alike = item.base == whole.base and item.sizes == whole.sizes[1:] and item.strides == whole.strides[1:]
        if alike and step is not None and item.offset == whole.offset + at * step and item.minimum is not None:
            return item
    return None
