"""An output of a module with a full backward hook that is changed in place: torch made it a view that must not be."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_MESSAGE = "of BackwardHookFunction is a view and is being modified inplace"
_HOOKS = ("register_full_backward_hook", "register_full_backward_pre_hook", "register_module_full_backward_hook")
_MOST = 2


def hooked_output(at: FailingLine) -> str | None:
    """The line that set the hook, and the change to make where the output is changed."""
    if _MESSAGE not in at.message:
        return None
    hooks = [where for where, call in _calls(at) if called_name(call) in _HOOKS]
    set_at = f" (set at {' and '.join(hooks)})" if 0 < len(hooks) <= _MOST else ""
    return (
        f"A module with a full backward hook{set_at} hands out a view, which line {at.line} must not change in place: "
        f"{_change(at)}. Or set a hook of the tensor in a forward hook: `output.register_hook(...)`."
    )


def hooked_subject(at: FailingLine) -> str | None:
    """For the headline."""
    return f"it is the output of a module with a full backward hook{_changed(at)}" if _MESSAGE in at.message else None


def _changed(at: FailingLine) -> str:
    return f", changed in place at line {at.line}" if _inplace(at.statement) is not None else ""


def _change(at: FailingLine) -> str:
    own = _inplace(at.statement)
    if own is not None:
        return f"write `inplace=False` at line {at.line}"
    if isinstance(at.statement, ast.AugAssign):
        target = source(at.statement.target)
        return f"write `{target} = {target} ...` there"
    made = [where for where, call in _calls(at) if _inplace(call) is not None]
    call = at.only(ast.Call)
    if call is not None and (called_name(call) or "").endswith("_"):
        return f"use `{(called_name(call) or '')[:-1]}()` there, which makes a new tensor"
    if 0 < len(made) <= _MOST:
        return f"make the layer of {' and '.join(made)} with `inplace=False`"
    return "make the layers behind it with `inplace=False`, or `.clone()` the output first"


def _inplace(node: ast.AST | None) -> ast.keyword | None:
    """`inplace=True` of a call in it."""
    words = (item for item in (nodes_of(node) if node is not None else ()) if isinstance(item, ast.keyword))
    return next(
        (item for item in words if item.arg == "inplace" and isinstance(item.value, ast.Constant) and item.value.value),
        None,
    )


def _calls(at: FailingLine) -> Iterator[tuple[str, ast.Call]]:
    """Those of the program's files, each with its place."""
    for file, tree in at.files.items():
        for item in nodes_of(tree):
            if isinstance(item, ast.Call) and not any(isinstance(part, ast.Call) for part in item.args):
                yield at.in_file(file, item.lineno), item
