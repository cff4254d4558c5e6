"""A weight that an optimizer's step changed between the forward that saved it and backward()."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import msgspec
from msgspec import structs

from pytracer._text import list_words
from pytracer.analyze.evidence.failing.autograd.forward_lines import (
    calls_module,
    calls_self,
    forward_lines,
    given,
)
from pytracer.analyze.evidence.failing.autograd.in_place import may_change
from pytracer.analyze.evidence.failing.autograd.optimizer_steps import is_of_other_branch
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import is_empty_container, lines_that_bind
from pytracer.analyze.evidence.syntax.calls import passed_values
from pytracer.analyze.evidence.syntax.cut_values import is_without_graph, with_graph
from pytracer.analyze.evidence.syntax.loops import PLAIN_LOOPS, loops_around, loops_of
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.outcomes import ValueOf, outcome
from pytracer.analyze.evidence.syntax.scopes import class_around, own_nodes, spans, spans_body

_ASSIGNS = (ast.Assign, ast.AugAssign, ast.AnnAssign)
_LISTED = 4
_IN_PLACE = "modified by an inplace operation"


class _Step(msgspec.Struct, frozen=True):
    """A call before the failing line, or before a call that leads to it, that runs the optimizer's step()."""

    call: ast.Call
    spot: Spot
    direct: bool


class _Loss(msgspec.Struct, frozen=True):
    """As the function with that step calls it, and what made it there."""

    name: str
    statement: ast.Assign

    @property
    def line(self) -> int:
        return self.statement.lineno


def weight_subject(at: FailingLine) -> str | None:
    """What the headline says of it."""
    weight, optimizer = _weight(at), at.values.get("its optimizer")
    if weight is None or optimizer is None or changed_weight(at) is None:
        return None
    step = _last_step(at, optimizer)
    maybe = (
        f", if {at.place(step.spot, step.call.lineno)} ran" if step is not None and _is_conditional(at, step) else ""
    )
    return f"`{optimizer}.step()` changed {weight} after the forward{maybe}"


def _weight(at: FailingLine) -> str | None:
    """`` `self.critic.2.weight` [1, 64] ``, of the parameter that the message is about."""
    shape = (recorded_parameter(at) or "").partition(" ")[2]
    return f"`{_name(at)}` {shape}" if shape and _IN_PLACE in at.message else None


def recorded_parameter(at: FailingLine) -> str | None:
    """`self.critic.2.weight [1, 64]`, unless that message cannot be about it."""
    found = at.values.get("changed parameter")
    return None if found is None or is_no_linear_weight(at.message, found) else found


def is_no_linear_weight(message: str, named: str) -> bool:
    """Whether the message is about a leaf, and a matrix of that shape is a `weight`: autograd saves it transposed."""
    name, _, shape = named.partition(" ")
    return "which is output" not in message and name.endswith(".weight") and shape.count(",") == 1


def behind_loop(at: FailingLine, spot: Spot, line: int) -> str:
    """`line 25`, or `the loop of line 21` around that, which does not have the line of the frame."""
    loops = [item for item in loops_of(spot.scope) if spans_body(item.body, line) and not spans(item, spot.line)]
    first = min((item.lineno for item in loops), default=None)
    return at.place(spot, line) if first is None else f"the loop of {at.place(spot, first)}"


def rebound(at: FailingLine, spot: Spot, statement: ast.stmt, last: int) -> str:
    """`` with line 14``: what gave the variables that a statement reads, and that a line up to the last one sets."""
    lines, waiting = set[int](), [statement]
    while waiting:
        item = waiting.pop()
        value = getattr(item, "value", None)
        for name in names_in(value) if isinstance(value, ast.AST) else ():
            bound = [line for line, _ in lines_that_bind(spot.scope, name) if item.lineno < line <= last]
            for line, _ in given(spot.scope, name, item.lineno) if bound else ():
                if line < item.lineno and line not in lines:
                    lines.add(line)
                    waiting += [
                        part for part in own_nodes(spot.scope) if isinstance(part, _ASSIGNS) and part.lineno == line
                    ]
    places = list_words([str(at.place(spot, line)) for line in sorted(lines)[:_LISTED]])
    return f" with {places}" if places else ""


def _name(at: FailingLine) -> str:
    return (recorded_parameter(at) or "").partition(" ")[0]


def changed_weight(at: FailingLine) -> str | None:
    """By the recorded parameter, and the statements that run a step of the optimizer that has it."""
    weight, optimizer = _weight(at), at.values.get("its optimizer")
    if weight is None or optimizer is None:
        return None
    step = _last_step(at, optimizer)
    changes = f"`{optimizer}.step()`, which changes {weight}"
    if step is not None:
        return _before(at, step, f"{changes} if it ran" if _is_conditional(at, step) else changes)
    later = _in_round_before(at, optimizer)
    if later is None or may_change(at):  # in_place.py tells of those
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
        again = _anew_in_function(at, step)
        return (
            f"{runs}, and backward() at line {at.line} still needs its value from before. Call every backward() "
            f"before the first step(), or {again or 'compute this loss after that step'}."
        )
    behind = behind_loop(at, step.spot, step.call.lineno)
    spot = structs.replace(step.spot, line=loss.line)
    lines = _forward(at, spot, loss.statement.value)
    if lines:
        return (
            f"{runs}, but `{loss.name}` ({_lines(at, spot, [*lines, loss.line])}) needs the old value: compute all of "
            f"it anew behind {behind}, or call every backward() before the first step()."
        )
    anew = ", from the forward on," if lines is None else rebound(at, spot, loss.statement, step.call.lineno)
    return (
        f"{runs}, but `{loss.name}` ({at.place(spot, loss.line)}: `{source(loss.statement)}`) was computed before, and "
        f"its backward() needs the old value. Compute it anew{anew} "
        f"behind {behind}, or call every backward() before the first step()."
    )


def _anew_in_function(at: FailingLine, step: _Step) -> str | None:
    """Of a loss that is not one variable of one line: the lines of that function from the forward on."""
    call, spot = at.only(ast.Call), at.slice.spot(0)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    if owner is None or spot is None or step.spot.scope is not at.scope:
        return None
    lines = _forward(at, spot, owner)
    if not lines or lines[0] > step.call.lineno:
        return None
    return f"run the forward of this loss anew after that step ({_lines(at, spot, lines)})"


def _forward(at: FailingLine, spot: Spot, value: ast.expr) -> list[int] | None:
    """As forward_lines(), of the changed weight, where the function has it by the recorded name."""
    is_same = class_around(spot.tree, spot.scope) is class_around(at.tree, at.scope)
    return forward_lines(at, spot, value, _name(at)) if is_same or not _name(at).startswith("self.") else None


def _lines(at: FailingLine, spot: Spot, lines: Sequence[int]) -> str:
    """`` line 76: `fake = self.critic(x)`, then line 79 ``."""
    assigns = (item for item in own_nodes(spot.scope) if isinstance(item, _ASSIGNS) and item.lineno == lines[0])
    first = next(assigns, None)
    words = f"{at.place(spot, lines[0])}{f': `{source(first)}`' if first is not None else ''}"
    if len(lines) == 1:
        return words
    if len(lines) > _LISTED:
        return f"{words}, then what uses it up to {at.place(spot, lines[-1])}"
    rest = [str(line) for line in lines[1:]]
    return f"{words}, then line{'s' if len(rest) > 1 else ''} {list_words(rest)}"


def _computed_before(at: FailingLine, step: _Step) -> _Loss | None:
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
    assigns = (item for item in own_nodes(step.spot.scope) if isinstance(item, ast.Assign) and item.lineno == line)
    found = next(assigns, None)
    return _Loss(name, found) if found is not None else None


def _computed_behind(at: FailingLine, step: _Step) -> bool:
    """Whether the loss was computed after that step, as far as its function shows: another line changed the weight.

    What the loss is computed from may be older, as data are, but not what the module of the weight returned.
    """
    call = at.only(ast.Call)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    names = names_in(owner) if owner is not None else []
    if step.spot.scope is not at.scope:
        return False
    made = [item for name in names for item in given(at.scope, name, at.line) if not _is_plain(item[1])]
    lines = [line for line, _ in made if line < at.line]
    return bool(lines) and min(lines) > step.call.lineno and not _forward_before(at, step, names)


def _is_plain(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) or is_empty_container(node)


def _forward_before(at: FailingLine, step: _Step, names: Sequence[str]) -> bool:
    """Whether these variables come from a call of the weight's module above the step, or in a round before it."""
    loops, paths = [item for item in loops_of(at.scope) if spans(item, step.call.lineno)], [_name(at)]
    waiting, seen = [(name, at.line) for name in names], set[tuple[str, int]]()
    while waiting:
        pair = waiting.pop()
        if pair in seen:
            continue
        seen.add(pair)
        for line, value in given(at.scope, *pair):
            carried = line >= pair[1] and any(spans(item, line) for item in loops)
            parts = [] if is_without_graph(at.scope, line) else [*with_graph(value)]
            called = any(calls_module(item, paths) or calls_self(item) for item in parts)
            if (carried or line <= step.call.lineno) and called:
                return True
            waiting += [(name, line) for item in parts if (name := variable(item)) is not None]
    return False


def _is_conditional(at: FailingLine, step: _Step) -> bool:
    """Whether an `if` that does not have the frame's line may have left it out, as far as the values are recorded."""

    def value(node: ast.expr) -> str | None:
        return at.value_at(node, step.spot)

    for item in own_nodes(step.spot.scope):
        arms = (item.body, item.orelse) if isinstance(item, ast.If) else ()
        arm = next((arm for arm in arms if any(step.call in nodes_of(part) for part in arm)), None)
        if arm is None or not isinstance(item, ast.If) or spans_body(arm, step.spot.line):
            continue
        if _came_out(item.test, value) is not (arm is item.body):
            return True
    return False


def _came_out(test: ast.expr, value_of: ValueOf) -> bool | None:
    """With the recorded values; of `loss is not None` also where the value is a tensor."""
    found = outcome(test, value_of)
    if found is not None or not isinstance(test, ast.Compare) or not isinstance(test.ops[0], (ast.Is, ast.IsNot)):
        return found
    other = test.comparators[0]
    known = len(test.ops) == 1 and isinstance(other, ast.Constant) and other.value is None
    return isinstance(test.ops[0], ast.IsNot) if known and value_of(test.left) not in (None, "None") else None


def _last_step(at: FailingLine, optimizer: str) -> _Step | None:
    return next((step for depth in range(len(at.frames)) for step in _steps(at, depth, optimizer)), None)


def _steps(at: FailingLine, depth: int, optimizer: str) -> list[_Step]:
    """The last one before that frame's line; not one of another branch."""
    spot = at.slice.spot(depth)
    if spot is None:
        return []
    found = []
    for item in own_nodes(spot.scope):
        if isinstance(item, ast.Call) and item.lineno < spot.line and not is_of_other_branch(spot, item):
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


def _in_round_before(at: FailingLine, optimizer: str) -> int | None:
    """The line of its only step(), behind the failing line in a loop around both."""
    steps = [item.lineno for item in own_nodes(at.scope) if isinstance(item, ast.Call) and _is_step(item, optimizer)]
    if len(steps) != 1 or steps[0] <= at.line:
        return None
    both = [item for item in loops_around(at.tree, at.line, PLAIN_LOOPS) if steps[0] <= (item.end_lineno or 0)]
    return steps[0] if both else None
