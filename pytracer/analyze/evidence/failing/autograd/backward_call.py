"""The line that called backward(), where the backward() of an autograd function of the program raised below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from pytracer._library_files import is_library_file
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.report.job import PythonFrame

TWICE = "backward through the graph a second time"
_ENGINE = ("torch/autograd/graph.py", "torch/autograd/__init__.py")


def caller_of_backward(stack: Sequence[PythonFrame]) -> int | None:
    """Its place on a stack, innermost first; None where the engine runs no function of the program, or for nobody."""
    inner = next((n for n, frame in enumerate(stack) if not is_library_file(frame.file)), None)
    if inner is None:
        return None
    engine = next((n for n in range(inner + 1, len(stack)) if (stack[n].file or "").endswith(_ENGINE)), None)
    if engine is None:
        return None
    return next((n for n in range(engine + 1, len(stack)) if not is_library_file(stack[n].file)), None)


def outside_backward(at: FailingLine) -> FailingLine:
    """The line that called backward(), with its variables; `at` itself where that called it, or is not known."""
    place = caller_of_backward(at.stack)
    tree = syntax_tree(at.snapshot, at.stack[place]) if place is not None else None
    if place is None or tree is None or at.stack[place].line is None:
        return at
    outer = at.exception.outer or ()
    exception = msgspec.structs.replace(
        at.exception,
        variables=next((item.variables for item in outer if item.frame == place), None),
        columns=None,
        near=None,
        outer=[
            msgspec.structs.replace(item, frame=item.frame - place)
            for item in outer
            if item.frame is not None and item.frame > place
        ],
    )
    stack = at.stack[place:]
    frames = [frame for frame in stack if not is_library_file(frame.file)]
    return replace(at, exception=exception, stack=stack, frames=frames, tree=tree)
