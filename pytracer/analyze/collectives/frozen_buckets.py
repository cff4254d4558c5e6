"""A bucket of DDP that one rank never reduced, because a line froze one of its layers there alone."""

from __future__ import annotations

from collections.abc import Iterator

from pytracer.analyze.collectives.library_calls import library_call
from pytracer.analyze.collectives.same_rounds import has_same_rounds
from pytracer.analyze.collectives.ways import Side
from pytracer.analyze.evidence.exceptions.changed_layers import ChangedLayer, frozen_in_model
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.syntax.loops import Loop, loops_around
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.journal import Buckets


def frozen_bucket(one: Side, other: Side) -> ChangedLayer | None:
    """Of two ranks, of which one is in the all-reduce of a backward, and the other one in another call.

    None where a loop on the way to the backward may have more rounds on one of them.
    """
    sides = [side for side in (one, other) if (library_call(side.view, side.call) or "").endswith("backward")]
    if len(sides) != 1 or sides[0].call.op != "all_reduce":
        return None
    there, absent = (one, other) if sides[0] is one else (other, one)
    if not all(has_same_rounds(there, absent, place, loop) for place, loop in _loops(there)):
        return None
    snapshot = absent.view.process.snapshot
    names = {
        item.fqn: None
        for layout in snapshot.recorded(Buckets)
        for bucket in layout.data.buckets
        for item in bucket.parameters
    }
    return frozen_in_model(program_files(snapshot, absent.way[::-1]), [*names]) if names else None


def _loops(side: Side) -> Iterator[tuple[int, Loop]]:
    """Those on the way to its call, with the place of their function in it."""
    for place, frame in enumerate(side.way):
        tree = syntax_tree(side.view.process.snapshot, frame)
        if tree is not None and frame.line is not None:
            yield from ((place, loop) for loop in loops_around(tree, frame.line))
