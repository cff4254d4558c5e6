"""An index of a native crash that is the smallest integer: which variable has it, and where it became that number.

An int64 of that kind seldom crashes: times the size of an element it is 0. An int32 leads 8 GiB and more before an
array.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.failing.line import failing_line
from pytracer.analyze.evidence.failing.not_finite.converted import is_smallest, origin_of
from pytracer.analyze.evidence.indices.reached_row import reached_row
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.operators.line_tensors import line_tensors
from pytracer.analyze.evidence.own_code.arrays import line_arrays
from pytracer.analyze.evidence.own_code.looked_up import looked_up
from pytracer.analyze.view import ProcessView
from pytracer.report.job import ExceptionReport


class SmallestIndex(msgspec.Struct, frozen=True):
    """`summary`: behind what the headline has. `behind`: its lines."""

    summary: str
    advice: str
    behind: Behind


def smallest_index(view: ProcessView) -> SmallestIndex | None:
    """None where no such number led there, or where nothing is known of where it came from."""
    held, frames = _held(view), program_frames(view)
    at = failing_line(view.process.snapshot, ExceptionReport(), frames) if held is not None else None
    spot = at.slice.spot(0) if at is not None else None
    if held is None or at is None or spot is None:
        return None
    name, number = held
    found = origin_of(at, ast.parse(name, mode="eval").body, spot, number)
    if found.is_unknown:
        return None
    advice = f"`{name}` has {number}, {found.words(at)}. {found.advice(at)}"
    behind = Behind.of([], *at.named)
    return SmallestIndex(f"{number} is {found.words(at)}{found.hazards(at)}", advice, behind)


def _held(view: ProcessView) -> tuple[str, int] | None:
    """The variable that has it, and the number."""
    way = reached_row(view)
    if way is not None and way.index is not None and way.index.name is not None and is_smallest(way.row):
        return _plain(way.index.name, way.row)
    looked = looked_up(view)
    if looked is not None and (is_smallest(looked.row) or is_smallest(looked.by.low)):
        number = looked.row if is_smallest(looked.row) else looked.by.low
        return _plain(looked.by.name, number)
    held = [
        (item.name, item.item.minimum)
        for item in line_tensors(view)
        if item.name is not None and item.item.is_integer and is_smallest(item.item.minimum)
    ]
    held += [(item.expression, item.minimum) for item in line_arrays(view) if is_smallest(item.minimum)]
    return _plain(*held[0]) if len(held) == 1 else None


def _plain(name: str | None, number: int | None) -> tuple[str, int] | None:
    try:
        node = ast.parse(name or "", mode="eval").body
    except SyntaxError:  # a parameter of a module, in words
        return None
    known = isinstance(node, (ast.Name, ast.Attribute, ast.Subscript))
    return (name, number) if known and name is not None and number is not None else None
