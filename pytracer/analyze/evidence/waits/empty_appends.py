"""A loop that is to make something longer, and whose recorded passes have added nothing.

Where torch.cat() gives a tensor with an element, that has a storage, which is recorded with its line. So passes that
made other tensors at lines of the loop, and none at that line, have added nothing.
"""

from __future__ import annotations

import msgspec

from pytracer.analyze.evidence.syntax.appends import append_of
from pytracer.analyze.evidence.syntax.scopes import scope_of, spans
from pytracer.analyze.evidence.syntax.unbounded import EndlessLoop, Reason, loops_at
from pytracer.analyze.evidence.waits.made_tensors import made_tensors
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_PASSES = 32  # tensors of the loop's lines, the last ones, that show what its passes made


class EmptyAppend(msgspec.Struct, frozen=True):
    """`grows`: that line did make tensors, so it adds something."""

    loop: EndlessLoop
    reason: Reason
    grows: bool


def empty_append(view: ProcessView, frame: PythonFrame) -> EmptyAppend | None:
    """Of the innermost `while` around a frame's line."""
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame.line is None:
        return None
    scope = scope_of(tree, frame.line)
    loop = next(iter(loops_at(scope, frame.line)), None)
    found = append_of(tree, scope, loop) if loop is not None else None
    if loop is None or found is None:
        return None
    made = made_tensors(view, frame, loop)[-_PASSES:] if found.always_new else []
    grows = any(spans(found.node, line) for line, _ in made)
    proven = len(made) == _PASSES and not grows
    return EmptyAppend(loop, found.reason(tree, scope, loop, proven=proven), grows)
