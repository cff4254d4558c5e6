"""The condition below which a line ends the process by os._exit(), sys.exit() or exit(), or another one by kill()."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pytracer._library_files import is_library_file
from pytracer._text import shortened
from pytracer.analyze.evidence.syntax.scopes import is_main_part, own_nodes, scope_of, spans_body
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import PythonFrame

_LONGEST, _MOST_FRAMES = 70, 3


def exit_condition(snapshot: Snapshot, stack: Sequence[PythonFrame]) -> str | None:
    """`` Line 12 does so where `loss.isnan()` holds (line 11) ``, else the same of a caller.

    None where no line of the program on the stack is below a condition.
    """
    own = frames_below_condition(snapshot, stack)
    words = condition_at(snapshot, own[-1]) if own else None
    return f"Line {own[-1].line} {'leads there' if len(own) > 1 else 'does so'} {words}" if words is not None else None


def frames_below_condition(snapshot: Snapshot, stack: Sequence[PythonFrame]) -> list[PythonFrame]:
    """The innermost frames of the program, up to the first one that is below a condition; none where none is."""
    own = [frame for frame in stack if not is_library_file(frame.file)][:_MOST_FRAMES]
    below = next((number for number, frame in enumerate(own) if condition_at(snapshot, frame) is not None), None)
    return own[: below + 1] if below is not None else []


def condition_at(snapshot: Snapshot, frame: PythonFrame) -> str | None:
    """`` where `loss.isnan()` holds (line 11) ``: the innermost `if` or `except` of the function around its line."""
    tree = syntax_tree(snapshot, frame)
    if tree is None or frame.line is None:
        return None
    around = [item for item in own_nodes(scope_of(tree, frame.line)) if _is_around(item, frame.line)]
    inner = max(around, key=lambda item: getattr(item, "lineno", 0), default=None)
    if isinstance(inner, ast.If):
        above = f" (line {inner.lineno})" if inner.lineno != frame.line else ""
        return f"where `{shortened(ast.unparse(inner.test), _LONGEST)}` holds{above}"
    if isinstance(inner, ast.ExceptHandler):
        what = f"`except {ast.unparse(inner.type)}`" if inner.type is not None else "`except`"
        return f"in the {what} of line {inner.lineno}"
    return None


def _is_around(item: ast.AST, line: int) -> bool:
    """Whether it stands around the line and decides about it; of an `if`, its first branch."""
    decides = isinstance(item, (ast.If, ast.ExceptHandler)) and not is_main_part(item)
    return decides and spans_body(item.body, line)  # type: ignore[attr-defined]
