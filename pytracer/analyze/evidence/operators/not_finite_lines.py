"""The lines that can make NaN or infinity of what the failing line passes, where native code dies of such numbers.

What the program's datasets return counts as well, where a DataLoader takes part. They can make it; which one did is not
recorded.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.failing.not_finite.hazard import WEAK, Hazard
from pytracer.analyze.evidence.failing.not_finite.made import samples
from pytracer.analyze.evidence.failing.not_finite.reach import Part, parts_of, values_read
from pytracer.analyze.evidence.failing.not_finite.weights import (
    MOST_LINES,
    hazard_advice,
    hazard_subject,
    hazards_of,
    place_of,
)
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import ExceptionReport, PythonFrame

_LINALG = Pattern(r"\blinalg\.|\b(?:svd|qr|lu|inverse|pinverse|cholesky|geqrf|lstsq)$")


class NotFiniteLines(msgspec.Struct, frozen=True):
    """`subject`: behind the headline's words, `; line 31 divides by ...`. `advice`: a sentence for each."""

    subject: str
    advice: str
    behind: Behind


def not_finite_lines(view: ProcessView) -> NotFiniteLines | None:
    """None where the source shows none of them, or many."""
    at = failing_line(view.process.snapshot, ExceptionReport(), program_frames(view))
    found = _hazards(at) if at is not None else []
    if at is None or not 0 < len(found) <= MOST_LINES or found[0].weight == WEAK:
        return None
    behind = Behind.of([], *(place_of(at, item) for item in found), *(item.also for item in found))
    return NotFiniteLines(hazard_subject(at, found), hazard_advice(at, found), behind)


def makers_of(snapshot: Snapshot, frames: Sequence[PythonFrame], name: str, line: int) -> str:
    """A sentence for each line that can make a variable NaN or infinite; nothing where the source shows none, or many.

    Args:
        snapshot: A process that ran these lines.
        frames: Of the program, innermost first; the first one is of the function that has the variable.
        name: The variable.
        line: That reads it: what a later line computes is none of them.
    """
    at = failing_line(snapshot, ExceptionReport(), frames)
    spot = at.slice.spot(0) if at is not None else None
    if at is None or spot is None:
        return ""
    for roots in (values_read(at, name, structs.replace(spot, line=line)), _loaded(at)):
        found = hazards_of(at, roots, lambda item: not item.backward)
        if found and found[0].weight != WEAK:
            return hazard_advice(at, found)
    return ""


def _loaded(at: FailingLine) -> list[Part]:
    """What the program's datasets return, where it makes a DataLoader."""
    calls = (item for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.Call))
    return samples(at) if any(called_name(item) == "DataLoader" for item in calls) else []


def _hazards(at: FailingLine) -> list[Hazard]:
    spot, statement = at.slice.spot(0), at.statement
    if spot is None or statement is None:
        return []
    roots = [Part(statement, spot)]
    nodes = (item for part in parts_of(at, statement, spot) for item in nodes_of(part.node))
    if any(isinstance(item, ast.Call) and called_name(item) == "DataLoader" for item in nodes):
        roots += samples(at)
    return hazards_of(at, roots, lambda item: _can_reach(item, statement))


def _can_reach(item: Hazard, statement: ast.stmt) -> bool:
    """Whether the native code may have been given what it makes: no size is recorded, and its result comes later."""
    if item.backward or item.only not in ("", "zero"):
        return False
    if not any(part is item.node for part in nodes_of(statement)):
        return True
    inside = (part for part in nodes_of(item.node) if isinstance(part, ast.Call) and part is not item.node)
    return not any(_LINALG.search(ast.unparse(part.func)) for part in inside)
