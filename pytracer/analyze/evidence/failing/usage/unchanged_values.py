"""A number that a loop should have made a tensor, and that is as it was before: the loop had no round.

`total = 0.0`, `for x in loader: total += loss_of(x)`, and then `all_reduce(total)` or `total.item()`.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.usage.empty_rounds import (
    Loop,
    for_loops,
    had_items,
    is_met,
    is_unset,
    nothing_given,
    runs_in_each_round,
)
from pytracer.analyze.evidence.slicing.single_tensors import METHODS, returns_one_tensor
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, spans

_OF_NUMBER = Pattern(
    r"of type torch\.Tensor\s+but got <class '(?:float|int)'>|'(?:float|int)' object has no attribute '\w+'"
    r"|must be (?:a )?(?:torch\.)?Tensor,? (?:not|but got) (?:float|int)\b"
    r"|expected (?:a )?Tensor.*\bgot (?:float|int)\b"
)
_NUMBERS = Pattern(r"\.item\(\)|\.tolist\(\)|\b(?:float|int|len|round)\(|\.(?:size|numel)\(|\.shape\b")
_OF_TENSOR = METHODS | {"grad", "data"}


class _Unchanged(msgspec.Struct, frozen=True):
    """`first`: the line that sets it to `value`; `loop`: the only one that changes it behind that."""

    name: str
    value: str
    first: ast.Assign
    loop: Loop


def unchanged_number(at: FailingLine) -> str | None:
    """What was to become a tensor, the loop without a round, and what that went over."""
    found = _unchanged(at) if _OF_NUMBER.search(at.message) else None
    spot = at.slice.spot(0)
    if found is None or spot is None:
        return None
    nothing = nothing_given(at, found.loop, spot)
    kind, line = ("float" if "." in found.value else "int"), at.here(found.loop.lineno)
    here = " on this rank" if at.snapshot.rank is not None else ""
    return (
        f"`{found.name}` is still {found.value}, a plain {kind} ({at.here(found.first.lineno)}: "
        f"`{source(found.first)}`): the loop of {line} that changes it had no round{here}, as {nothing.words}. "
        f"Begin with a tensor there (`torch.zeros(())`), and see why: {_look(at, nothing.step)}"
    )


def _look(at: FailingLine, step: str | None) -> str:
    own = (step or "Look at what it goes over.").replace("Look at", "look at")
    return f"{own[0].lower()}{own[1:]}" + (" Compare the ranks." if at.snapshot.rank is not None else "")


def _unchanged(at: FailingLine) -> _Unchanged | None:
    read = at.node if at.node is not None else at.statement
    for name in names_in(read) if read is not None else ():
        value, first = at.values.get(name), _only_first(at.scope, name, at.line)
        if value is None or first is None or not _is_number(first.value, value) or is_unset(at.scope, name):
            continue
        loop = _only_loop(at.scope, name, first.lineno, at.line)
        if loop is None or spans(loop, at.line) or not is_met(at.scope, loop, at.line) or had_items(at, loop):
            continue
        if _may_be_plain(at, name, loop):
            continue
        if not any(variable(item) in at.values for item in nodes_of(loop.target)):  # else there was a round
            return _Unchanged(name, value, first, loop)
    return None


def _only_first(scope: Scope, name: str, line: int) -> ast.Assign | None:
    """The only plain assignment outside of loops above a line."""
    within = [item for item in for_loops(scope) if not spans(item, line)]
    found = [
        item
        for item in own_nodes(scope)
        if isinstance(item, ast.Assign) and item.lineno < line and any(variable(part) == name for part in item.targets)
        if not any(spans(loop, item.lineno) for loop in within)
    ]
    return found[0] if len(found) == 1 else None


def _is_number(node: ast.expr, recorded: str) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float) and repr(node.value) == recorded


def _only_loop(scope: Scope, name: str, first: int, line: int) -> Loop | None:
    """The loop of whose body alone each round adds what is no plain number to it."""
    changes = [item for item in own_nodes(scope) if isinstance(item, ast.stmt) and _adds_to(item, name)]
    changes = [item for item in changes if first < item.lineno < line]
    loops = [item for item in for_loops(scope) if item.lineno > first and any(_is_in(item, part) for part in changes)]
    if len(loops) != 1 or not all(_is_in(loops[0], item) for item in changes):
        return None
    sure = any(runs_in_each_round(loops[0], item.lineno) for item in changes)
    plain = any(_NUMBERS.search(ast.unparse(item)) or _is_plain(item) for item in changes)
    return loops[0] if sure and not plain else None


def _adds_to(item: ast.stmt, name: str) -> bool:
    if isinstance(item, ast.AugAssign):
        return variable(item.target) == name
    return isinstance(item, ast.Assign) and any(variable(part) == name for part in item.targets)


def _is_plain(item: ast.stmt) -> bool:
    """`count += 1`."""
    return isinstance(item, (ast.Assign, ast.AugAssign)) and isinstance(item.value, ast.Constant)


def _may_be_plain(at: FailingLine, name: str, loop: Loop) -> bool:
    """Whether rounds may have added plain numbers: of the program's function, or of an object that it goes over."""
    spot = at.slice.spot(0)
    targets = {variable(item) for item in nodes_of(loop.target)} - {None}
    changes = [item for item in own_nodes(loop) if isinstance(item, ast.stmt) and _adds_to(item, name)]
    for node in (part for item in changes for part in nodes_of(item)):
        if isinstance(node, ast.Attribute) and variable(node.value) in targets and node.attr not in _OF_TENSOR:
            return True
        if not isinstance(node, ast.Call) or spot is None:
            continue
        own = at.slice.function(node, spot) is not None
        if called_name(node) == "sum" and isinstance(node.func, ast.Name):
            return True
        if own and not returns_one_tensor(at.slice, node, spot):
            return True
    return False


def _is_in(loop: Loop, item: ast.stmt) -> bool:
    return loop.lineno < item.lineno <= (loop.end_lineno or 0)
