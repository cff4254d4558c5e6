"""next() of what has no item at all: a loader without a batch, a search that nothing passes."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.usage.empty_data import empty_data
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of


def no_first_item(at: FailingLine) -> str | None:
    """`next(iter(loader))`, `next(x for x in rows if x.ready)`: both begin anew, so that there is none."""
    if at.kind != "StopIteration" or at.node is None:
        return None
    calls = [item for item in nodes_of(at.node) if isinstance(item, ast.Call) and called_name(item) == "next"]
    if len(calls) != 1 or len(calls[0].args) != 1:
        return None
    inner = calls[0].args[0]
    if isinstance(inner, ast.GeneratorExp):
        return _no_match(at, inner) if at.own else None
    of_iter = isinstance(inner, ast.Call) and called_name(inner) == "iter" and len(inner.args) == 1
    if not of_iter or not isinstance(inner, ast.Call):
        return None
    spot, value = at.slice.spot(0), at.value(inner.args[0]) or ""
    why = empty_data(at, inner.args[0], spot) if spot is not None else None
    if why is None and not value.startswith("DataLoader") and not value.endswith(" of 0"):
        return None
    name = source(inner.args[0])
    cause = f": {why}" if why is not None else f" ({value})"
    return f"`{name}` gives nothing at all{cause}. Handle the empty case before line {at.line}, or mend what fills it."


def _no_match(at: FailingLine, search: ast.GeneratorExp) -> str | None:
    tests = " and ".join(f"`{source(test)}`" for part in search.generators for test in part.ifs)
    over = source(search.generators[0].iter)
    if len(search.generators) != 1 or not tests:
        return None
    return (
        f"No item of `{over}` passes {tests}, so that next() has none: give it a default (`next(..., None)`) and "
        f"handle that, or print what line {at.line} looks for and what `{over}` has."
    )
