"""An end that the program asks for where a number is not finite: what can have made it so, by the source alone."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import names_in
from pytracer.analyze.evidence.failing.line import failing_line
from pytracer.analyze.evidence.failing.not_finite.hazard import WEAK
from pytracer.analyze.evidence.failing.not_finite.reach import Part
from pytracer.analyze.evidence.failing.not_finite.weights import MOST_LINES, hazard_advice, hazard_subject, hazards_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import ExceptionReport, PythonFrame

_REFUSES = Pattern(
    r"^not (?:\w+\.)*isfinite\([^()]*\)(?:\.all\(\))?$|^(?:\w+\.)*is(?:nan|inf)\([^()]*\)(?:\.any\(\))?$"
)

_MODULES = ("math", "torch", "np", "numpy")


def refused_loss(snapshot: Snapshot, stack: Sequence[PythonFrame]) -> tuple[str, str] | None:
    """For the headline, and what to do; None where it asks nothing of the kind, or nothing in the source can do it."""
    at = failing_line(snapshot, ExceptionReport(type="SystemExit", message=""), stack)
    spot = at.slice.spot(0) if at is not None else None
    if at is None or spot is None:
        return None
    around = [
        item
        for item in own_nodes(at.scope)
        if isinstance(item, ast.If) and item.body[0].lineno <= at.line <= (item.body[-1].end_lineno or 0)
    ]
    test = max(around, key=lambda item: item.lineno).test if around else None
    names = names_in(test) if test is not None and _REFUSES.match(ast.unparse(test)) else []
    names = [name for name in names if name not in _MODULES]
    if len(names) != 1:
        return None
    found = hazards_of(at, [Part(ast.parse(names[0], mode="eval").body, spot)], lambda item: True)
    if not found or len(found) > MOST_LINES or found[0].weight == WEAK:
        return None
    subject = f"`{names[0]}` is not finite{hazard_subject(at, found)}"
    return subject, f"`{names[0]}` is not finite. {hazard_advice(at, found)}"
