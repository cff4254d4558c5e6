"""A loop that is to make something shorter, and whose recorded passes have removed nothing.

What a mask leaves of a tensor is a tensor of its own, whose storage is recorded with its size and line. A pass that
removes an element makes smaller ones than the pass before: many of few sizes are passes that removed nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec

from pytracer.analyze.evidence.syntax.bindings import bound_value
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.outcomes import ValueOf
from pytracer.analyze.evidence.syntax.removals import removal_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, scope_of, spans
from pytracer.analyze.evidence.syntax.unbounded import EndlessLoop, Reason, loops_at
from pytracer.analyze.evidence.waits.made_tensors import made_in_loop
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_LEAST = 32  # tensors of the line that removes
_PER_SIZE = 8  # on average: a pass makes a few there, of other sizes in each where something was removed
_MAKERS = frozenset({"cat", "stack", "concat", "concatenate", "hstack", "argsort", "clone", "arange", "nonzero"})


class EmptyRemoval(msgspec.Struct, frozen=True):
    """`frame`: where in the loop it was."""

    frame: PythonFrame
    loop: EndlessLoop
    reason: Reason


def empty_removal(view: ProcessView, frame: PythonFrame, value_of: ValueOf) -> EmptyRemoval | None:
    """Of the innermost `while` around a frame's line."""
    tree = syntax_tree(view.process.snapshot, frame)
    if tree is None or frame.line is None:
        return None
    scope = scope_of(tree, frame.line)
    loop = next(iter(loops_at(scope, frame.line)), None)
    found = removal_of(scope, loop) if loop is not None else None
    if loop is None or found is None:
        return None
    sizes = [nbytes for line, nbytes in made_in_loop(view, frame, scope, loop) if spans(found.node, line)]
    many, few = len(sizes) >= _LEAST, len({*sizes}) * _PER_SIZE <= len(sizes)
    alone = _made_before(scope, loop, found.whole) or _passes(scope, loop, value_of) >= len(sizes)
    proven = many and few and alone
    if not proven and ((many and not few) or found.always):
        return None  # it removes something
    return EmptyRemoval(frame, loop, found.reason(loop, proven=proven))


def _made_before(scope: Scope, loop: EndlessLoop, whole: str) -> bool:
    """Whether the line before the loop makes a tensor, so that none of an earlier round of the loop is among them."""
    bound = bound_value(scope, whole, loop.lineno)
    value = bound[1] if bound is not None and bound[0] < loop.lineno else None
    if isinstance(value, ast.Call):
        return called_name(value) in _MAKERS
    return isinstance(value, ast.Subscript) and any(
        isinstance(item, (ast.Call, ast.Compare)) for item in nodes_of(value.slice)
    )


def _passes(scope: Scope, loop: EndlessLoop, value_of: ValueOf) -> int:
    """How many it had: the length of a list, empty before it, to which each pass adds one."""
    for item in loop.body:
        call = item.value if isinstance(item, ast.Expr) else None
        if not isinstance(call, ast.Call) or called_name(call) != "append" or not isinstance(call.func, ast.Attribute):
            continue
        name = ast.unparse(call.func.value)
        bound = bound_value(scope, name, loop.lineno)
        empty = bound is not None and isinstance(bound[1], ast.List) and not bound[1].elts
        adders = [one for one in _calls_of(scope, name) if one is not call]
        told = value_of(call.func.value) or ""
        if empty and not adders and told.startswith("list of "):
            return int(told.removeprefix("list of "))
    return 0


def _calls_of(scope: Scope, name: str) -> Sequence[ast.Call]:
    calls = (item for item in own_nodes(scope) if isinstance(item, ast.Call))
    return [one for one in calls if isinstance(one.func, ast.Attribute) and ast.unparse(one.func.value) == name]
