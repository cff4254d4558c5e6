"""An embedding of positions that is shorter than the sequence: its numbers are counted by arange(), not looked up."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.usage.settings import set_by
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name

_VIEWS = frozenset({"unsqueeze", "expand", "expand_as", "repeat", "view", "reshape", "to", "long", "cuda", "squeeze"})
_HOPS = 6
_ENDS = 2
_NAMED = Pattern(r"pos|place|wpe|time|step|seq|len|turn|block|order")


def too_many_places(at: FailingLine, rows: int, high: int) -> str | None:
    """The end of a sentence that begins with the table: how long the sequence is, and which tensor has that length."""
    call = _call(at)
    counted = _counted(at, call.args[0]) if call is not None and len(call.args) == 1 else None
    if call is None or counted is None or at.layer is None or not _is_of_places(at, call):
        return None  # of labels, columns or others, which are no sequence
    long = high + 1
    held = [(name, shape) for name, shape in _shapes(at) if long in shape[1:2]]
    if not held and any(len(shape) > 1 and shape[0] == long for _, shape in _shapes(at)):
        return None  # may be the batch
    what = f"`{held[0][0]}` [{', '.join(map(str, held[0][1]))}]" if held else "the sequence"
    made = set_by(at, at.layer.name, rows)
    return (
        f" has {rows} positions{made}, and `{source(call.args[0])}` counts {long}{counted}: {what} is longer than the "
        f"table. Cut the sequences to {rows} where they are made, or make the table for {long} (one that was trained "
        "has no values there)."
    )


def _call(at: FailingLine) -> ast.Call | None:
    """Of the embedding."""
    call = at.only(ast.Call)
    return call if at.layer is not None and call is not None and ast.unparse(call.func) == at.layer.name else None


def _is_of_places(at: FailingLine, call: ast.Call) -> bool:
    """By the name of the table, or of what it is asked with."""
    return _NAMED.search(f"{ast.unparse(call.func)} {ast.unparse(call.args[0])}".lower()) is not None


def _counted(at: FailingLine, node: ast.expr) -> str | None:
    """`` (line 12: `torch.arange(t)`) `` where arange() made it, and nothing was added."""
    spot: Spot | None = at.slice.spot(0)
    for _ in range(_HOPS):
        if spot is None:
            return None
        made = at.slice.made(node, spot, calls=False)
        inner, spot = made.node, made.spot
        if not isinstance(inner, ast.Call):
            return None
        if called_name(inner) == "arange":
            if len([item for item in inner.args if not isinstance(item, ast.Starred)]) > _ENDS:
                return None  # in steps
            return f" ({at.shown(made)})" if made.line != at.line else ""
        if called_name(inner) not in _VIEWS or not isinstance(inner.func, ast.Attribute):
            return None
        node = inner.func.value
    return None


def _shapes(at: FailingLine) -> list[tuple[str, tuple[int, ...]]]:
    """Of the tensors of this frame, inputs first."""
    names = [name for name in at.values if "." not in name and " " not in name and "[" not in name]
    return [(name, shape.sizes) for name in names if (shape := at.shape(name)) is not None]
