"""Which mode a program put its modules in before a line: `eval()` or `train()`."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of
from pytracer.analyze.naming import LineWords, short_file
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame


class Mode(msgspec.Struct, frozen=True):
    """`text`, `model.eval()` at `line`, sets `training`."""

    line: str
    text: str
    training: bool


def mode_before(snapshot: Snapshot, frames: Sequence[PythonFrame]) -> Mode | None:
    """The last call above its own line in the innermost function of the stack that has one.

    Args:
        snapshot: Of the process.
        frames: The program's, innermost first.
    """
    for frame in frames:
        tree = syntax_tree(snapshot, frame)
        if tree is None or frame.line is None:
            continue
        calls = [
            item
            for item in own_nodes(scope_of(tree, frame.line))
            if isinstance(item, ast.Call) and (item.end_lineno or item.lineno) < frame.line and _sets(item) is not None
        ]
        if calls:
            last = max(calls, key=lambda item: item.lineno)
            place = str(last.lineno) if frame.file == frames[0].file else f"{last.lineno} of {short_file(frame.file)}"
            return Mode(LineWords(place, frame.file, last.lineno), ast.unparse(last), _sets(last) is True)
    return None


def _sets(call: ast.Call) -> bool | None:
    """The value of `training` that a call sets; None of other calls."""
    if not isinstance(call.func, ast.Attribute):
        return None
    given = passed_values(call)
    if called_name(call) == "eval" and not given:
        return False
    if called_name(call) != "train" or len(given) > 1:
        return None
    if not given:
        return True
    return bool(given[0].value) if isinstance(given[0], ast.Constant) and isinstance(given[0].value, bool) else None
