"""What the program's own line of a collective calls: the collective itself, or what communicates inside."""

from __future__ import annotations

import ast

from pytracer.analyze.collectives.description import place_of
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Collective, Snapshot
from pytracer.report.job import PythonFrame


def calls_of_line(snapshot: Snapshot, frame: PythonFrame) -> list[ast.Call]:
    """The calls in the program's line."""
    tree = syntax_tree(snapshot, frame)
    return calls_on(tree, frame.line) if tree is not None and frame.line is not None else []


def only_call(snapshot: Snapshot, call: Collective) -> ast.Call | None:
    """The line's only call of that operation."""
    frame = place_of(call)
    on_line = calls_of_line(snapshot, frame) if frame is not None else ()
    calls = [item for item in on_line if called_name(item) == call.op]
    return calls[0] if len(calls) == 1 else None


def calls_itself(snapshot: Snapshot, call: Collective) -> bool:
    """Whether the program's own line calls the collective, and not a library inside of what it calls."""
    frame = place_of(call)
    return frame is not None and any(called_name(item) == call.op for item in calls_of_line(snapshot, frame))
