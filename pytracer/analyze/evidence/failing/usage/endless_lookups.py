"""RecursionError of a __getattr__ that asks for an attribute of its own."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer.analyze.evidence.failing.expressions import names_in
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.syntax.scopes import second_parameter
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import ExceptionReport, PythonFrame


def endless_lookup(at: FailingLine) -> str | None:
    """__getattr__ that asks for an attribute of its own, which is not set."""
    name = getattr(at.scope, "name", "")
    if at.kind != "RecursionError" or name not in ("__getattr__", "__getattribute__") or at.node is None:
        return None
    asked = [item for item in names_in(at.node) if item.startswith("self.")]
    sure = _asks_for_itself(at, asked[0].removeprefix("self.")) if len(asked) == 1 else False
    if sure is False:
        return None
    plain = asked[0].removeprefix("self.")
    first = "which is not set and leads" if sure else "which leads"
    made = "copy and pickle make the object without __init__"
    return (
        f"{name}() asks for `{asked[0]}`, {first} to {name}() again: "
        f"{made if sure else f'it may not be set, as {made}, or hold the next of too many objects of this class'}. "
        f'Begin it with `if name == "{plain}" or name.startswith("__"): raise AttributeError(name)`.'
    )


def endless_lookup_of(snapshot: Snapshot, stack: Sequence[PythonFrame]) -> str | None:
    """Of any stack that repeats, innermost first."""
    at = failing_line(snapshot, ExceptionReport(type="RecursionError"), stack)
    return endless_lookup(at) if at is not None else None


def _asks_for_itself(at: FailingLine, attribute: str) -> bool | None:
    """Whether the attribute itself is what was looked up: by the expression that failed, or by the length of the name.

    Else the object that it holds has the same __getattr__. None where neither is recorded.
    """
    if isinstance(at.node, ast.expr):
        return isinstance(at.node, ast.Attribute)
    value = at.values.get(second_parameter(at.scope) or "")
    return value == f"str of {len(attribute)}" if value is not None else None
