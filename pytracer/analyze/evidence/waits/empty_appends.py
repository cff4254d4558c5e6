"""A loop that is to make something longer, and whose recorded passes have added nothing.

Where torch.cat() gives a tensor with an element, that has a storage, which is recorded with its line. So passes that
made other tensors at lines of the loop, and none at that line, have added nothing.
"""

from __future__ import annotations

import msgspec

from pytracer.analyze.evidence.syntax.appends import append_of
from pytracer.analyze.evidence.syntax.scopes import scope_of, spans
from pytracer.analyze.evidence.syntax.unbounded import EndlessLoop, Reason, loops_at
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
    made = _last_made(view, frame, loop) if found.always_new else []
    grows = any(spans(found.node, line) for line in made)
    proven = len(made) == _PASSES and not grows
    return EmptyAppend(loop, found.reason(tree, scope, loop, proven=proven), grows)


def _last_made(view: ProcessView, frame: PythonFrame, loop: EndlessLoop) -> list[int]:
    """The lines of the loop at which its last tensors were made; nothing where some may be on a device."""
    snapshot = view.process.snapshot
    if snapshot.light or next(iter(snapshot.storages.on_devices()), None) is not None:
        return []
    found = sorted(
        (item.order, place.line)
        for item in snapshot.storages
        if (place := item.allocated_by.place) is not None and place.file == frame.file
        if place.line is not None and spans(loop, place.line)
    )
    return [line for _, line in found[-_PASSES:]]
