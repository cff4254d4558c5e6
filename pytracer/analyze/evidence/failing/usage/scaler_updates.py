"""A GradScaler that was not updated since an optimizer's last step(): where the program calls update()."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of, spans, spans_body

_AGAIN = Pattern(
    r"unscale_\(\) has already been called on this optimizer|unscale_\(\) is being called after step\(\)|"
    r"step\(\) has already been called since the last update\(\)"
)
_CALLS = ("unscale_", "step")
_UNSCALED = "unscale_() has already been called"
# Tests of an option that switches mixed precision: as the scaler runs at all, it holds in each step.
_OPTION = Pattern(r"amp\b|scaler|fp16|half|mixed|precision|cuda|enabled")


def missing_update(at: FailingLine) -> str | None:
    """No line of the program updates this scaler, or the only one stands below a condition."""
    call = at.only(ast.Call)
    if call is None or _AGAIN.search(at.message) is None or called_name(call) not in _CALLS:
        return None
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    if owner is None:
        return None
    name = source(owner).rpartition(".")[2]
    updates = [
        (file, tree, item)
        for file, tree in at.files.items()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == "update"
        if source(item.func.value).rpartition(".")[2] == name
    ]
    if len(updates) != 1 or (_UNSCALED in at.message and _calls(at, "unscale_") > 1):  # two of one step
        return None
    file, tree, update = updates[0]
    test = _only_where(at, file, tree, update)
    if test is None or _OPTION.search(ast.unparse(test.test)):
        return None
    return (
        f"`{source(update)}` ({at.in_file(file, update.lineno)}) runs only where `{short(ast.unparse(test.test))}` "
        f"({at.in_file(file, test.lineno)}) holds, and line {at.line} without it: a GradScaler allows unscale_() and "
        "step() once for each optimizer until update(). Call update() once behind the step() calls of each round, "
        "below no other condition than they are."
    )


def _calls(at: FailingLine, name: str) -> int:
    nodes = (item for tree in at.files.values() for item in nodes_of(tree))
    return sum(isinstance(item, ast.Call) and called_name(item) == name for item in nodes)


def _only_where(at: FailingLine, file: str, tree: ast.Module, update: ast.Call) -> ast.If | None:
    """The innermost `if` whose body has the update, and neither a line of the stack nor any step()."""
    scope = scope_of(tree, update.lineno)
    around = [item for item in nodes_of(scope) if isinstance(item, ast.If) and spans_body(item.body, update.lineno)]
    lines = [frame.line for frame in at.frames if frame.file == file and frame.line]
    around = [item for item in around if not any(spans(item, line) for line in lines)]
    around = [
        item
        for item in around
        if not any(isinstance(part, ast.Call) and called_name(part) in _CALLS for part in nodes_of(item))
    ]
    return max(around, key=lambda item: item.lineno, default=None)
