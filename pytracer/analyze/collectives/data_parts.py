"""The line of a program that gives each rank its own part of the data that a loop goes through."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.slicing.by_rank import size_source
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans
from pytracer.analyze.naming import line_in

_SAMPLERS = ("DistributedSampler",)


def part_of_data(slice_: Slice, at: Spot, here: str | None) -> str | None:
    """``line 59: `range(rank, len(val_set), world)` ``, of the innermost loop around a line of a function.

    Args:
        slice_: Of a rank.
        at: The line, in its function.
        here: The file of lines without one.
    """
    loops = [item for item in own_nodes(at.scope) if isinstance(item, LOOPS) and spans(item, at.line)]
    loop = max(loops, key=lambda item: item.lineno, default=None)
    if loop is None or isinstance(loop, ast.While):
        return None
    found = _by_sampler(slice_, loop.iter, at)
    if found is None:
        dealt = size_source(slice_, loop.iter, at)
        found = (dealt.node, dealt.spot) if dealt is not None and dealt.split is not None else None
    if found is None:
        return None
    node, spot = found
    return f"{line_in(spot.file, node.lineno, here)}: `{source(node)}`"


def _by_sampler(slice_: Slice, node: ast.expr, at: Spot) -> tuple[ast.expr, Spot] | None:
    """`DataLoader(data, sampler=DistributedSampler(data))`."""
    loader = slice_.made(node, at, calls=True)
    given = keyword_value(loader.node, "sampler") if isinstance(loader.node, ast.Call) else None
    sampler = slice_.made(given, loader.spot, calls=True) if given is not None else None
    if sampler is None or not isinstance(sampler.node, ast.Call) or called_name(sampler.node) not in _SAMPLERS:
        return None
    return sampler.node, sampler.spot
