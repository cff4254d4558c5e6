"""An end that the program asks for where a number is not finite: what can have made it so, by the source alone."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.failing.not_finite.hazard import WEAK, Hazard
from pytracer.analyze.evidence.failing.not_finite.hazards import is_infinite
from pytracer.analyze.evidence.failing.not_finite.made import samples
from pytracer.analyze.evidence.failing.not_finite.reach import Part, parts_of
from pytracer.analyze.evidence.failing.not_finite.weights import (
    MOST_LINES,
    hazard_advice,
    hazard_subject,
    hazards_of,
    rate,
    updated,
)
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import ExceptionReport, PythonFrame

_REFUSES = Pattern(
    r"^not (?:\w+\.)*isfinite\([^()]*\)(?:\.all\(\))?$|^(?:\w+\.)*is(?:nan|inf)\([^()]*\)(?:\.any\(\))?$"
)

_MODULES = ("math", "torch", "np", "numpy")
_IS_INFINITE, _IS_NAN = Pattern(r"\bisinf\("), Pattern(r"\bisnan\(")
_SAYS_INFINITE = Pattern(r"\binf\b")
_LIMITS = ("min", "max")


def refused_loss(
    snapshot: Snapshot, stack: Sequence[PythonFrame], message: str | None = None
) -> tuple[str, str | None] | None:
    """For the headline, and what to do if a line of the source can have made it so; None where it asks nothing of that.

    Where no line from the model to the loss can, what the dataset returns is looked at that the loss is computed from:
    no more than an advice, as the loss may have diverged. `message`: what the program said at its end.
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
    root, asked = Part(ast.parse(names[0], mode="eval").body, spot), ast.unparse(test) if test is not None else ""
    start = _start(at, root) if _IS_NAN.search(asked) is None else None
    if start is not None:
        return f"`{names[0]}` is not finite; {start[0]}", f"`{names[0]}` is not finite. {start[1]}"
    found = hazards_of(at, [root], lambda item: True)
    if not found and _IS_INFINITE.search(asked) is None and _SAYS_INFINITE.search(message or "") is None:
        return f"`{names[0]}` is not finite", _data_advice(at, names[0], _of_dataset(at, root))
    if not found or len(found) > MOST_LINES or found[0].weight == WEAK:
        return f"`{names[0]}` is not finite", None
    subject = f"`{names[0]}` is not finite{hazard_subject(at, found)}"
    return subject, f"`{names[0]}` is not finite. {hazard_advice(at, found)}"


def _data_advice(at: FailingLine, name: str, found: Sequence[Hazard]) -> str | None:
    """What to check first; and what else it may be, once the optimizer has made a step."""
    if not found or len(found) > MOST_LINES or found[0].weight == WEAK:
        return None
    said = (
        f"`{name}` is not finite. Check its batch with isfinite() first, as the dataset may have made it so. "
        f"{hazard_advice(at, found)}"
    )
    diverged = " If the batch is finite, the loss has probably diverged: look at the losses before."
    return " ".join(filter(None, (f"{said}{diverged}", rate(at)))) if updated(at) else said


def _start(at: FailingLine, root: Part) -> tuple[str, str] | None:
    """An infinite start value that a loop would have made less, or more, by min() or max(): for headline and advice."""
    for part in parts_of(at, root.node, root.spot):
        if not isinstance(part.node, ast.expr) or not is_infinite(part.node):
            continue
        scope, line = part.spot.scope, part.node.lineno
        made = [item for item in own_nodes(scope) if isinstance(item, ast.Assign) and item.value is part.node]
        names = {variable(target) for item in made for target in item.targets} - {None}
        loops = [
            item
            for item in own_nodes(scope)
            if isinstance(item, LOOPS)
            and item.lineno > line
            and any(_narrows(inner, names) for inner in own_nodes(item))
        ]
        if len(names) != 1 or not loops:
            continue
        loop = min(loops, key=lambda item: item.lineno)
        head = f"the loop of {at.in_file(part.spot.file, loop.lineno)}"
        sign = "-" if "-" in ast.unparse(part.node) else ""
        keeps = f"it keeps the {sign}inf of {at.in_file(part.spot.file, line)}"
        return f"{keeps} where {head} has no round, or only NaN", (
            f"{keeps[0].upper()}{keeps[1:]} (`{source(made[0])}`) where {head} has no round, as over an empty loader "
            "(fewer samples than a batch, with drop_last=True), or only NaN: count its rounds, and look at their "
            "values."
        )
    return None


def _narrows(node: ast.AST, names: set[str | None]) -> bool:
    """`best = min(best, loss)`."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return False
    given = {variable(item) for item in node.value.args}
    return called_name(node.value) in _LIMITS and any(variable(target) in names & given for target in node.targets)


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
