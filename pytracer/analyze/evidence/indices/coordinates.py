"""An index of torch's operator that is the smallest integer because the floats it was made of are NaN.

The kernel converts them itself: no tensor holds the index, but the address that it led to is exact.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.failing.not_finite.hazard import WEAK, Hazard
from pytracer.analyze.evidence.failing.not_finite.reach import Part, parts_of
from pytracer.analyze.evidence.failing.not_finite.weights import (
    MOST_LINES,
    hazard_advice,
    hazard_subject,
    hazards_of,
    losses,
    place_of,
    updated,
)
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.operators.operator import Operator, find_operator, shape_words
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.known.coordinates import Coordinates, coordinates_of
from pytracer.analyze.platform.instruction import signed
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Argument
from pytracer.report.job import Evidence, ExceptionReport

SMALLEST = -(1 << 31)
_EXACT = ("register", "computed", "exact")  # Place.found


class NotFinite(msgspec.Struct, frozen=True):
    """`summary`: what the coordinates are, and what can have made them so, for the headline behind its colon."""

    summary: str
    evidence: Evidence
    advice: str
    behind: Behind


class _Passed(msgspec.Struct, frozen=True):
    """The call of the program, and what it passes for the coordinates."""

    call: ast.Call
    given: ast.expr
    spot: Spot


def not_finite_coordinates(view: ProcessView) -> NotFinite | None:
    """None where another index led out, or where no call of the program passes the coordinates so."""
    operator, number = find_operator(view), smallest_index_at(view)
    entry = _entry(operator)
    if operator is None or entry is None or number is None:
        return None
    at = failing_line(view.process.snapshot, ExceptionReport(), program_frames(view))
    passed = _passed(at, entry) if at is not None else None
    if at is None or passed is None:
        return None
    place, name = at.in_file(passed.spot.file, passed.call.lineno), source(passed.given)
    found = hazards_behind(at, Part(passed.given, passed.spot))
    since = updated(at) and bool(losses(at))
    kind = "NaN or inf" if _may_be_infinite(passed.call, entry) and not _counted(view) else "NaN"
    summary = f"`{name}`, which {place} passes to {entry.call}(), has {kind}{hazard_subject(at, found)}"
    return NotFinite(
        summary,
        _evidence(view, number),
        _advice(at, entry, name, place, found, since),
        Behind.of([], place, *(place_of(at, item) for item in found), *(item.also for item in found)),
    )


def _entry(operator: Operator | None) -> Coordinates | None:
    names = (operator.name, operator.inside or "") if operator is not None else ()
    return next((entry for name in names if (entry := coordinates_of().get(name.rpartition("::")[2]))), None)


def smallest_index_at(view: ProcessView) -> int | None:
    """In elements from the start of a live storage: the smallest int32, and what a row or a corner adds to it."""
    place, instruction = view.place, view.instruction
    if place is None or place.storage is None or place.found not in _EXACT:
        return None
    scale = (
        place.formation.scale if place.formation is not None else instruction.scale if instruction is not None else 0
    )
    number, rest = divmod(signed(place.addr - place.storage.base), scale) if scale > 1 else (0, 1)
    return number if rest == 0 and 0 <= number - SMALLEST < place.storage.nbytes // scale else None


def _counted(view: ProcessView) -> list[Argument]:
    """Tensors with NaN that the forward saved for the operator."""
    operator = find_operator(view)
    saved = {item.base for item in (view.crash.holders if view.crash is not None else ()) if item.kind == "saved"}
    among = [item.item for item in (operator.tensors if operator is not None else ())]
    return [item for item in among if item.nans and item.base in saved]


def _evidence(view: ProcessView, number: int) -> Evidence:
    seen = _counted(view)
    counted = f"; of a saved tensor {shape_words(seen[0])} {seen[0].nans} are NaN" if seen else ""
    more = f" + {number - SMALLEST}" if number != SMALLEST else ""
    words = f"the index was {number}: NaN becomes {SMALLEST}{more} as an int32{counted}"
    return Evidence("index", words, value=number)


def _passed(at: FailingLine, entry: Coordinates) -> _Passed | None:
    """The only call of the program that leaves the coordinates unchecked; as the loss reaches it, where it does."""
    found = [
        (call, given, Spot(file, tree, scope_of(tree, call.lineno), call.lineno))
        for file, tree in at.files.items()
        for call in nodes_of(tree)
        if isinstance(call, ast.Call) and called_name(call) == entry.call and _is_unchecked(call, entry)
        if (given := _argument(call, entry, entry.coordinates)) is not None
    ]
    if len(found) != 1:
        return None
    call, given, spot = found[0]
    reached = (part.spot for root in losses(at) for part in parts_of(at, root.node, root.spot) if _has(part, call))
    return _Passed(call, given, next(reached, spot))


def _has(part: Part, call: ast.Call) -> bool:
    return any(item is call for item in nodes_of(part.node))


def _argument(call: ast.Call, entry: Coordinates, name: str) -> ast.expr | None:
    return argument_at(call, entry.arguments.split().index(name), name)


def _is_unchecked(call: ast.Call, entry: Coordinates) -> bool:
    """Whether its other arguments leave them so; of one that is a variable it is not known, and taken for so."""
    for name, values in entry.where.items():
        given = _argument(call, entry, name)
        value = entry.default.get(name) if given is None else getattr(given, "value", None)
        if (given is None or isinstance(given, ast.Constant)) and value not in values:
            return False
    return True


def _may_be_infinite(call: ast.Call, entry: Coordinates) -> bool:
    """Whether infinity becomes NaN on the way, as far as the call shows."""
    for name, values in entry.infinite.items():
        given = _argument(call, entry, name)
        if not isinstance(given, ast.Constant) or given.value in values:
            return True
    return False


def hazards_behind(at: FailingLine, given: Part) -> list[Hazard]:
    """What can make NaN of floats that a call passes: in this forward, or in the gradients of an earlier update."""
    found = hazards_of(at, [given], lambda item: not item.backward and item.only != "empty")
    found = [item for item in found if item.weight > WEAK]
    if updated(at):
        later = hazards_of(at, losses(at), lambda item: item.only != "empty")
        found += [item for item in later if item.weight > WEAK and all(item.node is not one.node for one in found)]
    return found if len(found) <= MOST_LINES else []


def _advice(at: FailingLine, entry: Coordinates, name: str, place: str, found: list[Hazard], since: bool) -> str:
    return " ".join(filter(None, _sentences(at, entry, name, place, found, since)))


def _sentences(
    at: FailingLine, entry: Coordinates, name: str, place: str, found: list[Hazard], since: bool
) -> Iterator[str]:
    yield hazard_advice(at, found)
    if since and any(item.backward for item in found):
        yield "Where a gradient is not finite, the next step of the optimizer makes weights NaN, and all they compute."
    elif since and not found:
        yield "The weights may be NaN since an earlier update: ask torch.isfinite() of them and of their gradients."
    yield (
        f"Before {place}, `assert torch.isfinite({name}).all()` stops at the first one that is not finite; "
        "torch.autograd.set_detect_anomaly(True) names the operator."
    )
    yield f"{entry.call}() does not ask: {entry.why}."
