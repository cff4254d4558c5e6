"""A DTensor of parts that each rank cut for itself: DTensor.from_local() takes for granted that all have one size.

What gathers it then passes the rank's own part, and the sizes meet there only.
"""

from __future__ import annotations

import ast

from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.collectives.left_out_calls import LeftOut
from pytracer.analyze.collectives.own_lines import calls_of_line
from pytracer.analyze.collectives.sizes import Side
from pytracer.analyze.collectives.ways import way_to
from pytracer.analyze.evidence.failing.expressions import as_written, short
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.naming import line_in

_MAKES, _CLASS = "from_local", "DTensor"
_GATHERS = ("redistribute", "full_tensor")
_WHOLE = frozenset({"shape", "stride", None})  # None: of `**options`


def local_part(first: Side, second: Side) -> LeftOut | None:
    """Where a line gathers such a DTensor, whose whole shape was not given."""
    for view, call in (first, second):
        snapshot, frame = view.process.snapshot, place_of(call)
        slice_ = Slice(snapshot, way_to(view, call)[::-1])
        spot = slice_.spot(0)
        calls = calls_of_line(snapshot, frame) if frame is not None else []
        owners = [
            item.func.value for item in calls if called_name(item) in _GATHERS and isinstance(item.func, ast.Attribute)
        ]
        if spot is None or frame is None or len(owners) != 1:
            continue
        made = slice_.made(owners[0], spot, calls=True)
        if not _is_of_parts(made):
            continue
        where = line_in(made.spot.file, made.line, frame.file)
        return LeftOut(
            f"{where} (`{short(as_written(made))}`) takes for granted that the parts of all ranks have one size",
            f"from_local() at {where} knows this rank's part alone. Make the DTensor by distribute_tensor() of the "
            "whole. Or cut the whole as torch.chunk() does (the size divided by the ranks, rounded up, for each; the "
            "last ones have less), and pass `shape=` and `stride=` of the whole to from_local().",
        )
    return None


def _is_of_parts(made: Made) -> bool:
    node = made.node
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == _MAKES
        and ast.unparse(node.func.value).rpartition(".")[2] == _CLASS
        and not any(item.arg in _WHOLE for item in node.keywords)
    )
