"""A `raise` of the program's own, at the end of its patience with a file that a loop of that function looks for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import LOOPS
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, statement_at
from pytracer.analyze.evidence.waits.polled_paths import OwnPath, asked_paths, own_path
from pytracer.analyze.view import JobView, ProcessView

_SLEEPS = ("sleep", "wait")


def unmet_path(job: JobView, view: ProcessView) -> OwnPath | None:
    """None where the loop looks for several, the path may be the same on all ranks, or all ranks ended so."""
    frames, stack = view.exception_stack_of_program, view.exception_stack
    ranks = [item for item in job.views if item.process.role == "rank"]
    if not frames or stack[0] != frames[0] or view.process.role != "rank":
        return None
    if all(item.raised and item.python_frame == view.python_frame for item in ranks):
        return None
    slice_ = Slice(view.process.snapshot, frames, stack=stack)
    spot = slice_.spot(0)
    if spot is None or not isinstance(statement_at(spot.tree, spot.line), ast.Raise):
        return None
    tests = [*_asking(slice_, spot)]
    paths = {ast.unparse(path) for test in tests for path, _, _ in asked_paths(slice_, test, spot)}
    return own_path(view.process.snapshot, frames, tests[0]) if len(paths) == 1 else None


def _asking(slice_: Slice, spot: Spot) -> Iterator[ast.expr]:
    """Conditions that loops above the line, or around it, ask a path by, with a pause between."""
    for loop in (item for item in own_nodes(spot.scope) if isinstance(item, LOOPS) and item.lineno < spot.line):
        inside = [*nodes_of(loop)]
        if not any(isinstance(item, ast.Call) and called_name(item) in _SLEEPS for item in inside):
            continue
        for item in inside:
            if isinstance(item, (ast.If, ast.While)) and next(asked_paths(slice_, item.test, spot), None) is not None:
                yield item.test
