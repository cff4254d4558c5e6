"""A GradScaler that was not updated since an optimizer's last step(): where the program calls update()."""

from __future__ import annotations

import ast

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.evidence.failing.autograd.optimizer_steps import is_of_other_branch
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import deciding_ifs, loops_around
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, scope_of, spans, spans_body

_AGAIN = Pattern(
    r"unscale_\(\) has already been called on this optimizer|unscale_\(\) is being called after step\(\)|"
    r"step\(\) has already been called since the last update\(\)"
)
_CALLS = ("unscale_", "step")
_UNSCALED = "unscale_() has already been called"
# Tests of an option that switches mixed precision: as the scaler runs at all, it holds in each step.
_OPTION = Pattern(r"amp\b|scaler|fp16|half|mixed|precision|cuda|enabled")


class _Update(msgspec.Struct, frozen=True):
    """`call`: the failing one, of the scaler `owner`; `update`: where it is updated."""

    call: ast.Call
    owner: ast.expr
    file: str
    tree: ast.Module
    update: ast.Call


def missing_update(at: FailingLine) -> str | None:
    """No line of the program updates this scaler, or the only one stands below a condition."""
    found = _only_update(at)
    test = _only_where(at, found.file, found.tree, found.update) if found is not None else None
    if found is None or test is None or _OPTION.search(ast.unparse(test.test)):
        return None
    return (
        f"`{source(found.update)}` ({at.in_file(found.file, found.update.lineno)}) runs only where "
        f"`{short(ast.unparse(test.test))}` ({at.in_file(found.file, test.lineno)}) holds, and line {at.line} without "
        "it: a GradScaler allows unscale_() and step() once for each optimizer until update(). Call update() once "
        "behind the step() calls of each round, below no other condition than they are."
    )


def _only_update(at: FailingLine) -> _Update | None:
    """The only line that updates the scaler; nothing where one step unscales twice."""
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
    return _Update(call, owner, *updates[0])


def unscaled_twice(at: FailingLine) -> str | None:
    """Two of one step: the other one is above the failing line, or above a call that leads to it."""
    call = at.only(ast.Call)
    if call is None or _UNSCALED not in at.message or called_name(call) != "unscale_":
        return None
    for depth in range(len(at.frames)):
        spot = at.slice.spot(depth)
        for item in own_nodes(spot.scope) if spot is not None else ():
            if spot is None or not isinstance(item, ast.Call) or item.lineno >= spot.line:
                continue
            inner = _unscales(at, item, spot) if not is_of_other_branch(spot, item) else None
            if inner is not None and (depth == 0 or inner[1] != at.line) and not _is_updated(spot, item):
                by = f", by {at.place(*inner)}," if item.lineno != inner[1] else ""
                where = at.place(spot, item.lineno)
                return (
                    f"{capital(where)} (`{source(item)}`){by} unscales the gradients before, and unscale_() is allowed "
                    f"once for an optimizer until update(). They stay unscaled until then: leave out `{source(call)}` "
                    f"at line {at.line}, or call it once, above both."
                )
    return None


def _unscales(at: FailingLine, call: ast.Call, spot: Spot) -> tuple[Spot, int] | None:
    """The line of an unscale_() that a call runs in any case: its own, or that of a function of the program."""
    if called_name(call) == "unscale_":
        return spot, call.lineno
    found = at.slice.function(call, spot)
    if found is None:
        return None
    own = [item for item in own_nodes(found[0]) if isinstance(item, ast.Call) and called_name(item) == "unscale_"]
    branches = (ast.If, ast.For, ast.While, ast.Try)
    inside = (item for item in own_nodes(found[0]) if isinstance(item, branches))
    sure = len(own) == 1 and not any(spans(item, own[0].lineno) for item in inside)
    return (found[1], own[0].lineno) if sure else None


def _is_updated(spot: Spot, call: ast.Call) -> bool:
    """Whether update() follows that call, above the frame's line."""
    calls = (item for item in own_nodes(spot.scope) if isinstance(item, ast.Call) and called_name(item) == "update")
    return any(call.lineno <= item.lineno < spot.line for item in calls)


def unscaled_each_batch(at: FailingLine) -> str | None:
    """With accumulation: step() and update() below a condition of some rounds, unscale_() in all of them."""
    known = _only_update(at) if _UNSCALED in at.message else None
    if known is None:
        return None
    call, owner, file, tree, update = known.call, known.owner, known.file, known.tree, known.update
    reached = update if scope_of(tree, update.lineno) is at.scope else _only_call_of(at, tree, update)
    if reached is None or reached.lineno <= at.line or (file != at.frame.file and reached is update):
        return None
    own = {ast.unparse(test.test) for test, _ in deciding_ifs(at.tree, at.line)}
    found = [
        (test, around)
        for test, around in deciding_ifs(at.tree, reached.lineno)
        if not spans(test, at.line) and test.lineno > at.line and ast.unparse(test.test) not in own
        if not _OPTION.search(ast.unparse(test.test)) and not (around and test.orelse)
    ]
    if len(found) != 1 or not loops_around(at.tree, at.line):
        return None
    test, around = found[0]
    holds, other = ("holds", " not") if around else ("does not hold", "")
    counts = any(isinstance(item, ast.Mod) for item in nodes_of(test.test))  # of some micro batches
    if not around and not counts:
        return None  # order.py tells of a round that was left
    instead = "" if counts else ", or update() wherever it ran"
    return (
        f"`{source(update)}` ({at.in_file(file, update.lineno)}) runs only where `{short(ast.unparse(test.test))}` "
        f"({at.here(test.lineno)}) {holds}, and `{source(call)}` also where it does{other}: unscale_() is allowed once "
        f"until update(). Call it and the clipping only where `{source(owner)}.step()` follows, right before that"
        f"{' (the gradients of all micro batches are there then)' if counts else ''}{instead}."
    )


def _only_call_of(at: FailingLine, tree: ast.Module, update: ast.Call) -> ast.Call | None:
    """The call in the failing function of the one that updates the scaler."""
    function = getattr(scope_of(tree, update.lineno), "name", None)
    calls = [item for item in own_nodes(at.scope) if isinstance(item, ast.Call) and called_name(item) == function]
    return calls[0] if len(calls) == 1 and function is not None else None


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
