"""An index that the program's own native code made of floats that are NaN: which tensor has them, and since when.

`(int)x` of NaN is the smallest int32 on x86-64, and no comparison with NaN holds, so that a check of the kind
`x < 0 || x >= width` lets it through.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

import msgspec

from pytracer._text import list_words
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.failing.not_finite.hazard import Hazard
from pytracer.analyze.evidence.failing.not_finite.reach import Part
from pytracer.analyze.evidence.failing.not_finite.weights import (
    hazard_advice,
    hazard_subject,
    losses,
    place_of,
    updated,
)
from pytracer.analyze.evidence.indices.coordinates import SMALLEST, hazards_behind, smallest_index_at
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.native.fault_function import own_function
from pytracer.analyze.evidence.operators.line_tensors import line_tensors
from pytracer.analyze.evidence.own_code.arrays import held_array, line_arrays
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.lines import names_of_line
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans, statement_at
from pytracer.analyze.evidence.wild.far_index import far_index
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument, HeldArray
from pytracer.decode.types.snapshot import PythonFrame as HeldFrame
from pytracer.report.job import Evidence, ExceptionReport, PythonFrame

_MOST = 2
_WHOLE = 1 << 32
_INDICES = ("int32", "int64")
_RESULTS = frozenset(("empty", "empty_like", "new_empty", "zeros", "zeros_like", "new_zeros", "full", "ones"))


class PassedFloats(msgspec.Struct, frozen=True):
    """`summary`: which of them are NaN, and what made them so; None where their numbers are not known."""

    summary: str | None
    evidence: Evidence | None
    advice: str
    behind: Behind


class _Floats(msgspec.Struct, frozen=True):
    """A variable of the line. `nans`: None where its numbers are not recorded."""

    name: str
    nans: int | None
    infinite: bool
    elements: int
    is_tensor: bool

    @property
    def is_bad(self) -> bool:
        return bool(self.nans or self.infinite)

    @property
    def is_unknown(self) -> bool:
        return self.nans is None

    @property
    def asked(self) -> str:
        """What asks whether it is finite."""
        return f"{'torch' if self.is_tensor else 'np'}.isfinite({self.name}).all()"

    @property
    def words(self) -> str:
        """`` `rois` has NaN in 4 of 20 numbers ``."""
        if not self.nans:
            return f"`{self.name}` has infinite numbers"
        return (
            f"`{self.name}` is all NaN"
            if self.nans == self.elements
            else f"`{self.name}` has NaN in {self.nans} of {self.elements} numbers"
        )


def passed_floats(view: ProcessView) -> PassedFloats | None:
    """None where another index led out, or the program's line passes no floats that can have made it."""
    number, function, frames = _number(view), own_function(view), program_frames(view)
    at = failing_line(view.process.snapshot, ExceptionReport(), frames) if number is not None else None
    if at is None or number is None or function is None or not function.own or _is_wrapped(view, number):
        return None
    tensors = line_tensors(view)
    if any(item.item.dtype in _INDICES and item.item.minimum in (None, SMALLEST) for item in tensors):
        return None  # it was an integer before, or may have been
    if any(_may_have_it(view, name) for name in names_of_line(at.tree, at.line)):
        return None
    floats = [*_floats(view, at)]
    bad = [item for item in floats if item.is_bad]
    if len(bad) > _MOST:
        return None
    if bad:
        return _of(view, at, bad, number)
    unknown = [item for item in floats if item.is_unknown]
    return _unread(at, unknown, number) if 0 < len(unknown) <= _MOST else None


def _number(view: ProcessView) -> int | None:
    """From the start of a live storage; else what registers show, for an array of NumPy."""
    far = far_index(view) if view.place is not None and view.place.storage is None else None
    return far.value if far is not None and far.value == SMALLEST else smallest_index_at(view)


def _may_have_it(view: ProcessView, name: str) -> bool:
    """Of an array of integers: `(x / y).astype(np.int32)` converts NaN before the native code has it."""
    array = held_array(view, name)
    if array is None or array.dtype not in _INDICES:
        return False
    if array.minimum is not None:
        return array.minimum == SMALLEST
    arguments = view.crash.arguments if view.crash is not None else ()
    least = [item.minimum for item in arguments if (item.data, item.dtype) == (array.data, array.dtype)]
    return not any(item is not None and item != SMALLEST for item in least)


def _is_wrapped(view: ProcessView, number: int) -> bool:
    """Whether it is inside the storage without its sign: then it was computed in 32 bits."""
    storage = view.place.storage if view.place is not None else None
    instruction = view.instruction
    if storage is None:
        return any(number + _WHOLE < math.prod(item.shape) for item in line_arrays(view))
    return instruction is None or number + _WHOLE < storage.nbytes // max(instruction.scale, 1)


def _floats(view: ProcessView, at: FailingLine) -> Iterator[_Floats]:
    """Those that the line names, but for what it indexes and for results that it is yet to fill."""
    indexed = view.place.storage.base if view.place is not None and view.place.storage is not None else None
    named = {item.name: item.item for item in line_tensors(view) if item.name is not None}
    arguments = view.crash.arguments if view.crash is not None else ()
    for name in names_of_line(at.tree, at.line):
        item, array = named.get(name), held_array(view, name)
        if item is None and array is not None and "float" in (array.dtype or ""):
            alike = next((held for held in arguments if (held.data, held.dtype) == (array.data, array.dtype)), None)
            found = _of_array(array, alike)
            base: int | None = alike.base if alike is not None else array.data
        elif item is not None and "float" in (item.dtype or "") and item.elements:
            found, base = _Floats(name, item.nans, bool(item.infinite), item.elements, is_tensor=True), item.base
        else:
            continue
        if base != indexed and not _is_result(at, name):
            yield found


def _of_array(array: HeldArray, alike: Argument | None) -> _Floats:
    """With the numbers of a tensor that has the same memory, where its own were not read."""
    elements = math.prod(array.shape)
    if array.nan_count is not None or alike is None:
        return _Floats(array.expression, array.nan_count, bool(array.has_infinity), elements, is_tensor=False)
    return _Floats(array.expression, alike.nans, bool(alike.infinite), elements, is_tensor=False)


def _is_result(at: FailingLine, name: str) -> bool:
    """Whether it was only made room for: what is in it may be left from before."""
    made = at.made(name)
    return made is not None and isinstance(made.node, ast.Call) and called_name(made.node) in _RESULTS


def _of(view: ProcessView, at: FailingLine, bad: list[_Floats], number: int) -> PassedFloats:
    names, spot = [item.name for item in bad], at.slice.spot(0)
    passed = Part(ast.parse(names[0], mode="eval").body, spot) if spot is not None else None
    hazards = hazards_behind(at, passed) if passed is not None else []
    before = _loss_before(view, at)
    since = f", and `{before}` of the round before was NaN" if before is not None else ""
    summary = f"{list_words([item.words for item in bad])}{since}{hazard_subject(at, hazards)}"
    more = f" + {number - SMALLEST}" if number != SMALLEST else ""
    words = f"the index was {number}: NaN becomes {SMALLEST}{more} as an int32; {list_words([i.words for i in bad])}"
    return PassedFloats(
        summary,
        Evidence("index", words, tensor=names[0], value=number),
        " ".join(_sentences(at, bad, before, hazards)),
        Behind.of(names, *(place_of(at, item) for item in hazards), *(item.also for item in hazards)),
    )


def _sentences(at: FailingLine, bad: list[_Floats], before: str | None, hazards: list[Hazard]) -> Iterator[str]:
    told = hazard_advice(at, hazards)
    if told:
        yield told
    if before is not None:
        yield (
            f"Stop where `{before}` is not finite, before its backward(): the optimizer's step after it makes weights "
            "NaN, and all they compute."
        )
    asked = " and ".join(item.asked for item in bad)
    yield (
        f"`assert {asked}` before line {at.line} stops there; the C code must skip such numbers itself, as no "
        "comparison with NaN holds."
    )


def _loss_before(view: ProcessView, at: FailingLine) -> str | None:
    """A loss that was NaN when its backward() ran: the running statement of a loop has not yet set it anew."""
    crash = view.crash
    if crash is None or not updated(at):
        return None
    nans = {(item.base, item.offset) for item in crash.arguments if item.elements == 1 and item.nans == 1}
    for depth, frame in enumerate(at.frames):
        spot = at.slice.spot(depth)
        names = {*_set_anew(at, spot)} if spot is not None else set()
        for held in crash.holders:
            of_frame = held.own and held.frame is not None and _place(held.frame) == _place(frame)
            if of_frame and held.expression in names and (held.base, held.offset) in nans:
                return held.expression
    return None


def _set_anew(at: FailingLine, spot: Spot) -> Iterator[str]:
    """Losses that only the running statement sets, of a loop, and that it does not read."""
    statement = statement_at(spot.tree, spot.line)
    loops = (item for item in own_nodes(spot.scope) if isinstance(item, LOOPS) and spans(item, spot.line))
    if not isinstance(statement, ast.Assign) or next(loops, None) is None:
        return
    read = {variable(item) for item in nodes_of(statement.value)}
    for root in losses(at):
        name = variable(root.node)
        bound = {line for line, _ in lines_that_bind(spot.scope, name)} if name is not None else set()
        if name is not None and root.spot.scope is spot.scope and name not in read and bound == {statement.lineno}:
            yield name


def _place(frame: PythonFrame | HeldFrame) -> tuple[str | None, str | None, int | None]:
    return frame.file, frame.function, frame.line


def _unread(at: FailingLine, floats: list[_Floats], number: int) -> PassedFloats:
    """Their numbers are not recorded: what to ask, and of which."""
    names = [item.name for item in floats]
    advice = (
        f"Check {list_words([f'`{name}`' for name in names])} with isfinite() before line {at.line} passes "
        f"{'them' if len(names) > 1 else 'it'}: {number} is what the processor makes of NaN, infinity, or a number too "
        "large for the integer type."
    )
    return PassedFloats(None, None, advice, Behind.of([]))
