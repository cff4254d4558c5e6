"""A weight that an optimizer's step changed between the forward that saved it and backward()."""

from __future__ import annotations

import ast

import msgspec

from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import passed_values
from pytracer.analyze.evidence.syntax.loops import PLAIN_LOOPS, last_of, loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans, spans_body

_HOPS = 3
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_IN_PLACE = "modified by an inplace operation"


class _Step(msgspec.Struct, frozen=True):
    """A call before the failing line, or before a call that leads to it, that runs the optimizer's step()."""

    call: ast.Call
    spot: Spot
    direct: bool


def weight_subject(at: FailingLine) -> str | None:
    """What the headline says of it."""
    weight, optimizer = _weight(at), at.values.get("its optimizer")
    found = changed_weight(at) is not None
    return f"`{optimizer}.step()` changed {weight} after the forward" if found and weight is not None else None


def _weight(at: FailingLine) -> str | None:
    """`` `self.critic.2.weight` [1, 64] ``, of the parameter that the message is about."""
    name, _, shape = at.values.get("changed parameter", "").partition(" ")
    return f"`{name}` {shape}" if shape and _IN_PLACE in at.message else None


def changed_weight(at: FailingLine) -> str | None:
    """By the recorded parameter, and the statements that run a step of the optimizer that has it."""
    weight, optimizer = _weight(at), at.values.get("its optimizer")
    if weight is None or optimizer is None:
        return None
    steps = [step for depth in range(len(at.frames)) for step in _steps(at, depth, optimizer)]
    changes = f"`{optimizer}.step()`, which changes {weight}"
    if steps:
        return _before(at, steps[0], changes)
    later = _in_round_before(at, optimizer)
    if later is None:
        return None
    return (
        f"Line {later} runs {changes}, and this backward() goes through a graph of a round before it, which needs the "
        "value from then. Detach what the loop carries from round to round (`.detach()`), or compute it anew in each."
    )


def _before(at: FailingLine, step: _Step, changes: str) -> str | None:
    place = at.place(step.spot, step.call.lineno)
    runs = f"{place[:1].upper()}{place[1:]}{'' if step.direct else f' (`{source(step.call)}`)'} runs {changes}"
    loss = _computed_before(at, step)
    if loss is None and _computed_behind(at, step):
        return None
    if loss is None:
        return (
            f"{runs}, and backward() at line {at.line} still needs its value from before. Call every backward() "
            "before the first step(), or compute this loss after that step."
        )
    return (
        f"{runs}, but `{loss[0]}` ({loss[1]}) was computed before, and its backward() needs the old value. Compute it "
        f"anew behind {place}, or call every backward() before the first step()."
    )


def _computed_before(at: FailingLine, step: _Step) -> tuple[str, str] | None:
    """The loss, as the function with that step calls it, and the line that made it there."""
    call = at.only(ast.Call)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    names = names_in(owner) if owner is not None else []
    made = at.made(names[0], calls=False) if len(names) == 1 else None
    passed = [node for node, spot in (made.through if made is not None else ()) if spot.scope is step.spot.scope]
    name = variable(passed[-1]) if passed else None
    bound = [item for item in lines_that_bind(step.spot.scope, name) if item[0] < step.spot.line] if name else []
    if name is None or not bound or max(line for line, _ in bound) >= step.call.lineno:
        return None
    line = max(line for line, _ in bound)
    text = next((source(item) for item in own_nodes(step.spot.scope)
                 if isinstance(item, ast.Assign) and item.lineno == line), None)  # fmt: skip
    return (name, f"{at.place(step.spot, line)}: `{text}`") if text is not None else None


def _computed_behind(at: FailingLine, step: _Step) -> bool:
    """Whether the loss was computed after that step, as far as its function shows: another line changed the weight."""
    call = at.only(ast.Call)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    waiting, lines = names_in(owner) if owner is not None else [], list[int]()
    if step.spot.scope is not at.scope or not waiting:
        return False
    line = at.line
    for _ in range(_HOPS):
        bound = [item for name in waiting for item in lines_that_bind(at.scope, name) if item[0] < line]
        if not bound:
            break
        lines += [number for number, _ in bound]
        waiting = [name for _, value in bound if value is not None for name in names_in(value)]
    made = [number for number in lines if number < at.line]
    return bool(made) and min(made) > step.call.lineno


def _steps(at: FailingLine, depth: int, optimizer: str) -> list[_Step]:
    """The last one before that frame's line; not one of another branch."""
    spot = at.slice.spot(depth)
    if spot is None:
        return []
    found = []
    for item in own_nodes(spot.scope):
        if isinstance(item, ast.Call) and item.lineno < spot.line and not _of_other_branch(spot, item):
            direct = _is_step(item, optimizer)
            if direct or _hands_on(at, item, spot, optimizer):
                found.append(_Step(item, spot, direct))
    return sorted(found, key=lambda step: -step.call.lineno)[:1]


def _is_step(call: ast.Call, optimizer: str | None) -> bool:
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "step":
        return False
    return optimizer is None or ast.unparse(call.func.value) == optimizer


def _hands_on(at: FailingLine, call: ast.Call, spot: Spot, optimizer: str) -> bool:
    """To a function of the program whose only step() is of that parameter."""
    given = passed_values(call)
    found = at.slice.function(call, spot) if any(ast.unparse(item) == optimizer for item in given) else None
    if found is None:
        return False
    steps = [item for item in own_nodes(found[0]) if isinstance(item, ast.Call) and _is_step(item, None)]
    names = [item.arg for item in (*found[0].args.args, *found[0].args.kwonlyargs)]
    return len(steps) == 1 and isinstance(steps[0].func, ast.Attribute) and ast.unparse(steps[0].func.value) in names


def _of_other_branch(spot: Spot, call: ast.Call) -> bool:
    """In another arm than the frame's line, in a handler, or in a branch of an `if` that leaves before that line.

    Any other branch may have run: the parameter was changed, and by that optimizer.
    """
    kinds = (ast.If, ast.Try, ast.ExceptHandler, ast.IfExp)
    around = [item for item in nodes_of(spot.scope) if isinstance(item, kinds)]
    return any(_is_apart(item, call.lineno, spot.line) for item in around)


def _is_apart(item: ast.If | ast.Try | ast.ExceptHandler | ast.IfExp, step: int, line: int) -> bool:
    if not isinstance(item, ast.If):
        end = item.end_lineno or 0
        return item.lineno <= step <= end and not item.lineno <= line <= end
    mine = next((arm for arm in (item.body, item.orelse) if spans_body(arm, step)), None)
    if mine is None:
        return False  # in its condition
    return not spans_body(mine, line) if spans(item, line) else isinstance(last_of(mine), _LEAVES)


def _in_round_before(at: FailingLine, optimizer: str) -> int | None:
    """The line of its only step(), behind the failing line in a loop around both."""
    steps = [item.lineno for item in own_nodes(at.scope) if isinstance(item, ast.Call) and _is_step(item, optimizer)]
    if len(steps) != 1 or steps[0] <= at.line:
        return None
    both = [item for item in loops_around(at.tree, at.line, PLAIN_LOOPS) if steps[0] <= (item.end_lineno or 0)]
    return steps[0] if both else None
