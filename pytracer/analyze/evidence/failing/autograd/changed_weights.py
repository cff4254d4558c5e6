"""A weight that an optimizer's step changed between the forward that saved it and backward()."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

import msgspec

from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.bindings import bindings_of
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import is_empty_container, lines_that_bind, lines_that_fill
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.loops import PLAIN_LOOPS, last_of, loops_around, loops_of
from pytracer.analyze.evidence.syntax.names import holds, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.outcomes import ValueOf, outcome
from pytracer.analyze.evidence.syntax.reaching import reaching
from pytracer.analyze.evidence.syntax.scopes import Scope, own_nodes, spans, spans_body

_CUTS = frozenset({"detach", "item", "tolist"})
_NO_GRAPH = re.compile(r"\b(?:no_grad|inference_mode)\b|set_grad_enabled\((?:mode=)?False\)")
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
    if weight is None or optimizer is None or changed_weight(at) is None:
        return None
    step = _last_step(at, optimizer)
    maybe = (
        f", if {at.place(step.spot, step.call.lineno)} ran" if step is not None and _is_conditional(at, step) else ""
    )
    return f"`{optimizer}.step()` changed {weight} after the forward{maybe}"


def _weight(at: FailingLine) -> str | None:
    """`` `self.critic.2.weight` [1, 64] ``, of the parameter that the message is about."""
    name, _, shape = at.values.get("changed parameter", "").partition(" ")
    return f"`{name}` {shape}" if shape and _IN_PLACE in at.message else None


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
    """Whether the loss was computed after that step, as far as its function shows: another line changed the weight.

    What the loss is computed from may be older, as data are, but not what the module of the weight returned.
    """
    call = at.only(ast.Call)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    names = names_in(owner) if owner is not None else []
    if step.spot.scope is not at.scope:
        return False
    given = [item for name in names for item in _given(at.scope, name, at.line) if not _is_plain(item[1])]
    lines = [line for line, _ in given if line < at.line]
    return bool(lines) and min(lines) > step.call.lineno and not _forward_before(at, step, names)


def _forward_before(at: FailingLine, step: _Step, names: Sequence[str]) -> bool:
    """Whether these variables come from a call of the weight's module above the step, or in a round before it."""
    loops = [item for item in loops_of(at.scope) if spans(item, step.call.lineno)]
    waiting, seen = [(name, at.line) for name in names], set[tuple[str, int]]()
    while waiting:
        pair = waiting.pop()
        if pair in seen:
            continue
        seen.add(pair)
        for line, value in _given(at.scope, *pair):
            carried = line >= pair[1] and any(spans(item, line) for item in loops)
            parts = [] if _is_without_graph(at.scope, line) else [*_with_graph(value)]
            if (carried or line <= step.call.lineno) and any(_calls_module(at, item) for item in parts):
                return True
            waiting += [(name, line) for item in parts if (name := variable(item)) is not None]
    return False


def _given(scope: Scope, name: str, line: int) -> list[tuple[int, ast.AST]]:
    """The lines that can have given a variable the value that it has there, or added to it, each with what it gave."""
    ways = reaching(scope, name, line, None)
    found: list[tuple[int, ast.AST]] = [(at, value) for at, value, _ in bindings_of(scope, name) if value is not None]
    fills = set(lines_that_fill(scope, name))
    for item in own_nodes(scope):
        if isinstance(item, (ast.For, ast.AsyncFor)) and holds(item.target, name):
            found.append((item.lineno, item.iter))
        elif (isinstance(item, ast.AugAssign) and variable(item.target) == name) or (
            isinstance(item, ast.Expr) and item.lineno in fills and item.lineno < line
        ):
            found.append((item.lineno, item.value))
    return [item for item in found if item[0] in fills or (item[0] < line if ways is None else item[0] in ways)]


def _is_plain(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) or is_empty_container(node)


def _with_graph(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of an expression without what a detach() cuts off."""
    if isinstance(node, ast.Call) and called_name(node) in _CUTS:
        return
    yield node
    for item in ast.iter_child_nodes(node):
        yield from _with_graph(item)


def _is_without_graph(scope: Scope, line: int) -> bool:
    around = (item for item in own_nodes(scope) if isinstance(item, ast.With) and spans_body(item.body, line))
    return any(_NO_GRAPH.search(ast.unparse(part.context_expr)) for item in around for part in item.items)


def _calls_module(at: FailingLine, node: ast.AST) -> bool:
    """Of the changed parameter, or one around that: `self.judge(x)` of `self.judge.2.weight`."""
    if not isinstance(node, ast.Call):
        return False
    name = at.values.get("changed parameter", "").partition(" ")[0]
    return name.startswith(f"{ast.unparse(node.func).removesuffix('.forward')}.")


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
