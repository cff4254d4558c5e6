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


def calls_itself(snapshot: Snapshot, call: Collective) -> bool:
    """Whether the program's own line calls the collective, and not a library inside of what it calls."""
    frame = place_of(call)
    return frame is not None and any(called_name(item) == call.op for item in calls_of_line(snapshot, frame))
