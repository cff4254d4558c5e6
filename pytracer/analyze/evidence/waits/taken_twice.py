"""A lock of a file that a function takes by `with` and calls another one, which takes it again: it waits for itself.

flock() locks what one open() gave: a second open() of the same file waits for it, in the same process, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from pytracer._text import shortened
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import calls_on
from pytracer.analyze.evidence.syntax.changes import is_own
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around, is_parameter, own_nodes, scope_of, withs_around
from pytracer.analyze.evidence.waits.standing_threads import ThreadReason
from pytracer.analyze.evidence.waits.wait_kinds import ProcessWait
from pytracer.analyze.evidence.waits.waits import program_stack
from pytracer.analyze.naming import line_in
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_LONGEST = 60


def taken_twice(view: ProcessView, wait: ProcessWait) -> ThreadReason | None:
    """By what two frames of its stack enter: the same call, with the same arguments, in one class or module."""
    if wait.kind not in ("flock", "lock-file"):
        return None
    frames = program_stack(view)
    for depth, frame in enumerate(frames):
        for taken in _entering(view, frame):
            outer = _holder(view, frames, depth, taken)
            if outer is None:
                continue
            where, line = outer
            here = wait.at.file if wait.at is not None else None
            text, again = shortened(ast.unparse(taken), _LONGEST), line_in(frame.file, frame.line, here)
            first = line_in(where.file, line, here)
            return ThreadReason(
                f"it has that lock itself: {where.function} took it by `with {text}` ({first}), and what it called "
                f"takes it again ({again})",
                f"Take the lock once: let {where.function} call a variant of {frame.function} that takes none, or "
                f"leave out the `with` of {first}. A lock of a file is not reentrant when the file is opened anew.",
                ((where.file or "", line), (frame.file or "", frame.line or 0)),
            )
    return None


def _entering(view: ProcessView, frame: PythonFrame) -> Iterator[ast.expr]:
    """What the `with` at a frame's line enters there."""
    tree = syntax_tree(view.process.snapshot, frame)
    for item in own_nodes(scope_of(tree, frame.line)) if tree is not None and frame.line is not None else ():
        if isinstance(item, ast.With):
            yield from (part.context_expr for part in item.items if part.context_expr.lineno == frame.line)


def _holder(
    view: ProcessView, frames: Sequence[PythonFrame], depth: int, taken: ast.expr
) -> tuple[PythonFrame, int] | None:
    """The closest frame further out that is inside of a `with` of the same, and the line of that."""
    inner = frames[depth]
    tree = syntax_tree(view.process.snapshot, inner)
    for further, frame in enumerate(frames[depth + 1 :], start=depth + 1):
        other = syntax_tree(view.process.snapshot, frame)
        if other is None or tree is None or frame.line is None or frame.file != inner.file:
            continue
        owners = [class_around(item, scope_of(item, at or 0)) for item, at in ((tree, inner.line), (other, frame.line))]
        if owners[0] is not owners[1] or (_of_object(taken) and not _calls_itself(other, frame.line)):
            continue
        for entered in withs_around(other, frame.line):
            if any(ast.unparse(item.context_expr) == ast.unparse(taken) for item in entered.items):
                same = _is_same(Slice(view.process.snapshot, frames), taken, depth, further)
                return (frame, entered.lineno) if same else None
    return None


def _is_same(back: Slice, taken: ast.expr, depth: int, further: int) -> bool:
    """Whether the variables in it have one value in both frames: a `path` that was passed may be of another file."""
    inner, outer = back.spot(depth), back.spot(further)
    if inner is None or outer is None:
        return False
    names = [item for item in nodes_of(taken) if isinstance(item, ast.Name) and item.id != "self"]
    local = [item for item in names if any(is_own(spot.scope, item.id) or is_parameter(spot.scope, item.id)
                                           for spot in (inner, outer))]  # fmt: skip
    return all(_origin(back, name, inner) == _origin(back, name, outer) for name in local)


def _origin(back: Slice, name: ast.Name, spot: Spot) -> tuple[str | None, int, str]:
    """The line that made a value, as far back as it is known; of a parameter, its function's line."""
    made = back.made(name, spot, calls=False)
    line = getattr(made.spot.scope, "lineno", 0) if isinstance(made.node, ast.Name) else made.line
    return made.spot.file, line, ast.unparse(made.node)


def _of_object(taken: ast.expr) -> bool:
    return any(isinstance(item, ast.Name) and item.id == "self" for item in nodes_of(taken))


def _calls_itself(tree: ast.Module, line: int) -> bool:
    """Whether a line calls a method of its own object: another one has a file of its own."""
    owners = [item.func.value for item in calls_on(tree, line) if isinstance(item.func, ast.Attribute)]
    return any(ast.unparse(item) in ("self", "super()") for item in owners)
