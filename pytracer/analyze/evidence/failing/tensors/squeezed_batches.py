"""An index into a tensor whose only dimension squeeze() took away: of a batch that has one sample."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_REDUCED = Pattern(r"(?i)loss|criterion|entropy|\b(?:sum|mean|max|min|item|norm|numel|std|var)\(")
_NO_DIMENSION = "invalid index of a 0-dim tensor"


def squeezed_batch(at: FailingLine) -> str | None:
    """`labels[i]`, where `labels = labels.squeeze()`."""
    if _NO_DIMENSION not in at.message or at.node is None:
        return None
    for item in nodes_of(at.node):
        shape = at.shape(item.value) if isinstance(item, ast.Subscript) else None
        made = at.made(item.value, calls=False) if isinstance(item, ast.Subscript) and shape is not None else None
        if not isinstance(item, ast.Subscript) or shape is None or shape.sizes or made is None:
            continue
        call = made.node
        if isinstance(call, ast.Call) and called_name(call) == "squeeze" and isinstance(call.func, ast.Attribute):
            if call.keywords or len(call.args) > (source(call.func.value) == "torch") or _REDUCED.search(source(call)):
                continue  # of one number, it takes nothing away
            return (
                f"`{source(item.value)}` ({at.shown(made)}) has no dimension left: squeeze() takes away every one of "
                "size 1, that of the batch, too, where it has one sample, as the last one of an epoch can. Name the "
                "dimension that is meant (`squeeze(1)`, `squeeze(-1)`)."
            )
    return None
