"""An end that the program asks for where a number is not finite: what can have made it so, by the source alone."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import names_in
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.failing.not_finite.hazard import WEAK, Hazard
from pytracer.analyze.evidence.failing.not_finite.made import samples
from pytracer.analyze.evidence.failing.not_finite.reach import Part, parts_of
from pytracer.analyze.evidence.failing.not_finite.weights import MOST_LINES, hazard_advice, hazard_subject, hazards_of
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import ExceptionReport, PythonFrame

_REFUSES = Pattern(
    r"^not (?:\w+\.)*isfinite\([^()]*\)(?:\.all\(\))?$|^(?:\w+\.)*is(?:nan|inf)\([^()]*\)(?:\.any\(\))?$"
)

_MODULES = ("math", "torch", "np", "numpy")


def refused_loss(snapshot: Snapshot, stack: Sequence[PythonFrame]) -> tuple[str, str | None] | None:
    """For the headline, and what to do if a line of the source can have made it so; None where it asks nothing of that.

    Where no line from the model to the loss can, what the dataset returns is looked at that the loss is computed from.
    """
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
    root = Part(ast.parse(names[0], mode="eval").body, spot)
    found = hazards_of(at, [root], lambda item: True) or _of_dataset(at, root)
    if not found or len(found) > MOST_LINES or found[0].weight == WEAK:
        return f"`{names[0]}` is not finite", None
    subject = f"`{names[0]}` is not finite{hazard_subject(at, found)}"
    return subject, f"`{names[0]}` is not finite. {hazard_advice(at, found)}"


def _of_dataset(at: FailingLine, root: Part) -> list[Hazard]:
    """Of what its `__getitem__` and the loader's collate_fn return, by the calls that the number is computed from."""
    parts = [*parts_of(at, root.node, root.spot)]
    calls = [item for part in parts for item in nodes_of(part.node) if isinstance(item, ast.Call)]
    made = {called_name(item) for item in calls}
    collates = {ast.unparse(item.value) for call in calls for item in call.keywords if item.arg == "collate_fn"}
    roots = [
        item
        for item in samples(at)
        if getattr(class_around(item.spot.tree, item.spot.scope), "name", None) in made
        or getattr(item.spot.scope, "name", None) in collates
    ]
    return hazards_of(at, roots, lambda item: not item.backward and item.only != "single")
