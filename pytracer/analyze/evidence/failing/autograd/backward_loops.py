"""A loop that goes backward from one loss after another, all of which were computed before it.

Two of them that were made by one forward share its graph, which the first backward() frees; and a step of an optimizer
behind each backward() changes parameters that the next of them may need.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.autograd.backward_losses import loss_of
from pytracer.analyze.evidence.failing.autograd.carried_states import carried_by_object
from pytracer.analyze.evidence.failing.autograd.graph_lines import bound_names
from pytracer.analyze.evidence.failing.autograd.in_place import may_be_parameter, may_change
from pytracer.analyze.evidence.failing.autograd.optimizer_steps import is_optimizer, stepped_optimizer
from pytracer.analyze.evidence.failing.expressions import names_in, short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans, spans_body

_IN_PLACE = "modified by an inplace operation"
_VIEWS = ("items", "values")
_PAIR = 2
_LISTED = (ast.Tuple, ast.List)
_MADE = (*_LISTED, ast.Dict, ast.ListComp, ast.DictComp)
_LIST = Pattern(r"^(?:list|tuple) of \d+")
_PLAIN = Pattern(r"^(?:\w+Dict|dict|list|tuple) of \d+")


class LossLoop(msgspec.Struct, frozen=True):
    """The loop, what has its losses, and the expression of one of them. `mapping`: they are its values."""

    loop: ast.For
    losses: ast.expr
    one: ast.expr
    spot: Spot
    mapping: bool


def loss_loop(at: FailingLine) -> LossLoop | None:
    """The innermost loop around the failing backward(), where its losses were there before it."""
    loss = loss_of(at)
    if loss is None or any(item.arg == "retain_graph" for item in _options(at)):
        return None
    around = [
        item
        for item in own_nodes(loss.spot.scope)
        if isinstance(item, ast.For) and spans_body(item.body, loss.spot.line)
    ]
    if not around:
        return None
    loop = max(around, key=lambda item: item.lineno)
    return _of(at, loop, loss.value, loss.spot)


def looped_losses(at: FailingLine) -> tuple[str | None, str | None]:
    """What to do where a graph is gone that losses of one loop may share; and for the headline."""
    found = loss_loop(at)
    if found is None or _passed_before(at, found):
        return None, None
    several, loop = source(found.losses), at.place(found.spot, found.loop.lineno)
    one = f"{several}.values()" if found.mapping else several
    total = (
        source(found.losses) if not isinstance(found.losses, _LISTED) else " + ".join(map(source, found.losses.elts))
    )
    add = f"sum({one})" if not isinstance(found.losses, _LISTED) else f"({total})"
    words = (
        f"The loop at {loop} calls backward() of one loss of `{several}` after another. Where two of them come from "
        "the same forward, the first backward() has freed what both need: add them and call it once "
        f"(`{short(add)}.backward()`), or pass retain_graph=True in all rounds but the last."
    )
    return words, f"the losses of `{several}` ({loop}) probably share a graph, which the first backward() frees"


def _passed_before(at: FailingLine, found: LossLoop) -> bool:
    """Whether an optimizer was stepped, and only lines behind the loop do that: the loop went through all once."""
    scope, last = found.spot.scope, found.loop.end_lineno or found.loop.lineno
    steps = [
        item
        for tree in at.files.values()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and (owner := stepped_optimizer(item)) is not None and is_optimizer(owner)
    ]
    behind = {id(item) for item in own_nodes(scope) if getattr(item, "lineno", 0) > last}
    done = getattr(at.snapshot, "step", None) or 0
    by_steps = getattr(at.snapshot, "step_source", None) == "optimizer steps"
    return done > 0 and by_steps and bool(steps) and all(id(item) in behind for item in steps)


def stepped_in_loop(at: FailingLine) -> str | None:
    """What to do where an optimizer is stepped in each round."""
    found = _stepped(at)
    if found is None:
        return None
    item, step = found
    loop, place = at.place(item.spot, item.loop.lineno), at.place(item.spot, step.lineno)
    return (
        f"{place[:1].upper()}{place[1:]} runs `{source(step)}` in each round of the loop at {loop}, but "
        f"`{source(item.losses)}` was computed before the loop: where two of these losses go through the same "
        "parameters, the later one needs their old values. Call every backward() before the first step(), or compute "
        "each loss in its own round."
    )


def stepped_in_loop_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _stepped(at)
    if found is None:
        return None
    item, step = found
    return (
        f"`{source(step)}` ({at.place(item.spot, step.lineno)}) of an earlier round probably changed what "
        f"`{source(item.one)}` needs"
    )


def _options(at: FailingLine) -> list[ast.keyword]:
    """Of the failing call, where torch would keep the graph, or may."""
    if _IN_PLACE in at.message:
        return []
    call = at.only(ast.Call)
    return call.keywords if call is not None else []


def _stepped(at: FailingLine) -> tuple[LossLoop, ast.Call] | None:
    """The one step behind the backward() in the loop, in the same branch; nothing else changes a tensor in place."""
    if _IN_PLACE not in at.message or not may_be_parameter(at.message) or may_change(at):
        return None
    found = loss_loop(at)
    if found is None or carried_by_object(at) is not None:  # what a step kept needs the old values as well
        return None
    steps = [
        item
        for item in own_nodes(found.spot.scope)
        if isinstance(item, ast.Call) and (owner := stepped_optimizer(item)) is not None and is_optimizer(owner)
    ]
    inside = [item for item in steps if spans_body(found.loop.body, item.lineno) and item.lineno > found.spot.line]
    if len(inside) != 1 or any(item.lineno < found.spot.line for item in steps):
        return None  # a step above is stepped_losses.py's
    kinds = (ast.If, ast.For, ast.While, ast.Try)
    between = [item for item in nodes_of(found.loop) if isinstance(item, kinds) and item is not found.loop]
    if any(spans(item, inside[0].lineno) != spans(item, found.spot.line) for item in between):
        return None
    return found, inside[0]


def _of(at: FailingLine, loop: ast.For, value: ast.expr, spot: Spot) -> LossLoop | None:
    targets = bound_names(loop.target)
    if isinstance(value, ast.Subscript):
        made = at.slice.made(value.value, spot, calls=False).node
        listed = _LIST.match(at.value(value.value) or "" if spot.depth == 0 else "")
        losses, mapping = value.value, listed is None and not isinstance(made, (*_LISTED, ast.ListComp))
        if not any(name in targets for name in names_in(value.slice)):
            return None
    elif isinstance(value, ast.Name) and value.id in targets:
        held = _held(loop.target, loop.iter, value.id)
        if held is None:
            return None
        losses, mapping = held
    else:
        return None
    if variable(losses) is None and not isinstance(losses, _LISTED):
        return None
    sets = [item for item in nodes_of(loop) if isinstance(item, (ast.Name, ast.Attribute)) and variable(item)]
    written = {variable(item) for item in sets if isinstance(item.ctx, ast.Store) and item.lineno > loop.lineno}
    filled = [item for item in nodes_of(loop) if isinstance(item, ast.Subscript) and isinstance(item.ctx, ast.Store)]
    changed = written | {variable(item.value) for item in filled}
    if any(name in changed for name in [variable(losses), *names_in(losses), variable(value)]):
        return None
    known = mapping and not isinstance(value, ast.Subscript)
    return LossLoop(loop, losses, value, spot, mapping) if known or _is_plain(at, losses, spot) else None


def _held(target: ast.expr, iterated: ast.expr, name: str) -> tuple[ast.expr, bool] | None:
    """What a loop variable is taken from; and whether that is a mapping."""
    call = iterated if isinstance(iterated, ast.Call) else None
    if call is None:
        return (iterated, False) if variable(target) == name else None
    view = isinstance(call.func, ast.Attribute) and called_name(call) in _VIEWS and not call.args
    parts = target.elts if isinstance(target, ast.Tuple) else []
    if view and isinstance(call.func, ast.Attribute):
        own = parts[-1] if called_name(call) == "items" and len(parts) == _PAIR else target
        return (call.func.value, True) if variable(own) == name else None
    if called_name(call) == "enumerate" and call.args and len(parts) == _PAIR:
        return _held(parts[1], call.args[0], name)
    if called_name(call) == "zip" and len(parts) == len(call.args):
        return next((_held(a, b, name) for a, b in zip(parts, call.args, strict=True) if _holds(a, name)), None)
    return None


def _holds(target: ast.expr, name: str) -> bool:
    return name in bound_names(target)


def _is_plain(at: FailingLine, losses: ast.expr, spot: Spot) -> bool:
    """Whether all its losses were there at once: a generator may compute each in its round."""
    if isinstance(losses, _LISTED):
        return all(isinstance(item, ast.Name) for item in losses.elts)
    recorded = at.value(losses) if spot.depth == 0 else None
    if recorded is not None:
        return _PLAIN.match(recorded) is not None
    return isinstance(at.slice.made(losses, spot, calls=False).node, _MADE)
