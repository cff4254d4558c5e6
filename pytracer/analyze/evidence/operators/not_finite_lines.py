"""The lines that can make NaN or infinity of what the failing line passes, where native code dies of such numbers.

What the program's datasets return counts as well, where a DataLoader takes part. They can make it; which one did is not
recorded.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.failing.not_finite.hazards import WEAK, Hazard
from pytracer.analyze.evidence.failing.not_finite.made import samples
from pytracer.analyze.evidence.failing.not_finite.reach import Part, parts_of
from pytracer.analyze.evidence.failing.not_finite.weights import (
    MOST_LINES,
    hazard_advice,
    hazard_subject,
    hazards_of,
    place_of,
)
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.view import ProcessView
from pytracer.report.job import ExceptionReport


@dataclass(frozen=True)
class NotFiniteLines:
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


def _hazards(at: FailingLine) -> list[Hazard]:
    spot, statement = at.slice.spot(0), at.statement
    if spot is None or statement is None:
        return []
    roots = [Part(statement, spot)]
    nodes = (item for part in parts_of(at, statement, spot) for item in ast.walk(part.node))
    if any(isinstance(item, ast.Call) and called_name(item) == "DataLoader" for item in nodes):
        roots += samples(at)
    return hazards_of(at, roots, lambda item: not item.backward and item.only in ("", "zero"))  # no sizes are recorded
