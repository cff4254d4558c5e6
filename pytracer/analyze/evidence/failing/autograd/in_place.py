"""The line that changed in place what backward() still needs."""

from __future__ import annotations

import ast
import re

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.autograd.backward_losses import loss_of
from pytracer.analyze.evidence.failing.autograd.forward_lines import given
from pytracer.analyze.evidence.failing.autograd.optimizer_steps import is_optimizer, stepped_optimizer
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.cut_values import is_without_graph
from pytracer.analyze.evidence.syntax.loops import loops_of
from pytracer.analyze.evidence.syntax.names import holds, variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of, spans_body, statement_at

_WEIGHT = Pattern(r"output 0 of (?:T|AsStrided|Transpose|Permute|Accumulate)(?:Backward0|Grad)?,")
_OUTPUT = Pattern(r"which is output \d+ of \w+")
_APART = frozenset({"data", "grad", "init"})
_ITERATED = frozenset({"parameters", "named_parameters", "buffers", "named_buffers"})
_MOST = 2


def changed_in_place(at: FailingLine) -> str | None:
    """Statements that change a tensor in place, where they are few; with those that change parameters."""
    found = may_change(at)
    lines = [f"{at.here(number)} (`{found[number]}`)" for number in sorted(found)]
    if not lines or len(lines) > _MOST:
        return None
    steps = _changes_of_parameters(at)
    if steps:
        listed = [f"{at.here(number)} (`{steps[number]}`)" for number in sorted(steps)][:_MOST]
        seem, change = ("seems", "seem")[len(lines) > 1], ("changes", "change")[len(listed) > 1]
        return (
            f"In this file {' and '.join(lines)} {seem} to change a tensor in place, and {' and '.join(listed)} "
            f"{change} parameters: backward() still needs what one of them changed. Call every backward() before the "
            "parameters change, or compute this loss after that; of a tensor of the forward, make a new one "
            "(`x = x + y`, `x.relu()`, torch.where, clone() before)."
        )
    only = "is the only line that seems to change a tensor in place" if len(lines) == 1 else "seem to change one"
    return (
        f"In this file {' and '.join(lines)} {only}, and backward() still needs what was there: write it so that it "
        "makes a new one (`x = x + y`, `x.relu()`, torch.where, clone() before)."
    )


def may_be_parameter(message: str) -> bool:
    """Whether torch's message can be about one: a leaf, or the transposed weight that a Linear saves."""
    return _OUTPUT.search(message) is None or _WEIGHT.search(message) is not None


def may_change(at: FailingLine) -> dict[int, str]:
    """The statements of the file that change a tensor in place and may have run since the forward, by their lines.

    Not those of `x.data`, which has a version of its own, and of gradients.
    """
    found: dict[int, str] = {}
    for item in nodes_of(at.tree):
        if not isinstance(item, (ast.stmt, ast.expr)) or not _changes_in_place(item):
            continue
        if can_have_run(at, item.lineno) and not _is_only_without_graph(at, item):
            found[item.lineno] = source(item)
    return found


def _changes_of_parameters(at: FailingLine) -> dict[int, str]:
    """An optimizer's step(), load_state_dict(), behind what made the loss; none where it cannot be a parameter."""
    if not may_be_parameter(at.message) or "changed parameter" in at.values:  # changed_weights.py knows that one's step
        return {}
    loss, found = loss_of(at), dict[int, str]()
    names = names_in(loss.value) if loss is not None else []
    made = [line for name in names if loss is not None for line, _ in given(loss.spot.scope, name, loss.spot.line)]
    for item in nodes_of(at.tree):
        line = getattr(item, "lineno", 0)
        if loss is not None and line < min(made, default=0) and scope_of(at.tree, line) is loss.spot.scope:
            continue
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and can_have_run(at, item.lineno):
            owner = stepped_optimizer(item)
            if (owner is not None and is_optimizer(owner)) or item.func.attr == "load_state_dict":
                found[item.lineno] = source(item)
    return found


def _changes_in_place(item: ast.AST) -> bool:
    """`names["a"] = 1` is a dict's."""
    if isinstance(item, ast.AugAssign):
        return _is_tensor_like(item) and _counts(item.target)
    if isinstance(item, ast.Call):
        return isinstance(item.func, ast.Attribute) and _is_in_place(item.func.attr) and _counts(item.func.value)
    held = [
        target for target in (item.targets if isinstance(item, ast.Assign) else ()) if isinstance(target, ast.Subscript)
    ]
    named = [part for part in held if isinstance(part.slice, ast.Constant) and isinstance(part.slice.value, str)]
    return any(part not in named and _counts(part) for part in held)


def _counts(node: ast.expr) -> bool:
    """Whether a change of it raises a version that the graph can have saved: not of `x.data`, `x.grad`, `nn.init`."""
    return not any(isinstance(item, ast.Attribute) and item.attr in _APART for item in nodes_of(node))


def _is_in_place(name: str) -> bool:
    inits = ("grad_", "__", "uniform_", "normal_", "memory_", "detach_")
    return name.endswith("_") and not name.startswith(("_", "clip_grad")) and not name.endswith(inits)


def _is_tensor_like(item: ast.AugAssign) -> bool:
    """No count: `n += 1`, `total += loss.item()`, `seen += len(y)`."""
    text = ast.unparse(item.value)
    return not (isinstance(item.value, ast.Constant) or re.search(r"\.item\(\)|^len\(|\.size\(|float\(|int\(", text))


def can_have_run(at: FailingLine, line: int) -> bool:
    """Whether a line of the file can have run between the forward and this backward().

    Not one behind the line where a running function is, without a loop around both. A function that only got the loss
    may have run before, for another one.
    """
    loss = loss_of(at)
    for depth, frame in enumerate(at.frames):
        spot = at.slice.spot(depth) if frame.file == at.frame.file else None
        if spot is None or scope_of(at.tree, line) is not spot.scope or line <= (_end(spot.tree, spot.line)):
            continue
        if any(spans_body(item.body, line) and spans_body(item.body, spot.line) for item in loops_of(spot.scope)):
            continue
        if loss is not None and any(item.scope is spot.scope for item in loss.inner) and _is_called_again(at, depth):
            continue
        return False
    return True


def _end(tree: ast.Module, line: int) -> int:
    found = statement_at(tree, line)
    return (found.end_lineno or line) if found is not None and not hasattr(found, "body") else line


def _is_called_again(at: FailingLine, depth: int) -> bool:
    """Whether the program calls that function in more than one place, or in a loop."""
    spot, outer = at.slice.spot(depth), at.slice.spot(depth + 1)
    name = getattr(spot.scope, "name", None) if spot is not None else None
    calls = [
        item
        for tree in at.files.values()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call)
        if called_name(item) == name
    ]
    loops = loops_of(outer.scope) if outer is not None else ()
    return len(calls) != 1 or any(outer is not None and spans_body(item.body, outer.line) for item in loops)


def _is_only_without_graph(at: FailingLine, item: ast.AST) -> bool:
    """A parameter, changed without gradients, of a module that the file calls without gradients alone."""
    func = item.func if isinstance(item, ast.Call) else None
    target = func.value if isinstance(func, ast.Attribute) else getattr(item, "target", None)
    name = variable(target) if isinstance(target, ast.AST) else None
    line = getattr(item, "lineno", 0)
    scope = scope_of(at.tree, line)
    if name is None or not is_without_graph(scope, line):
        return False
    loops = [loop for loop in loops_of(scope) if isinstance(loop, ast.For) and spans_body(loop.body, line)]
    module = next((found for loop in loops[::-1] if (found := _iterated(loop, name)) is not None), None)
    calls = [
        call
        for call in nodes_of(at.tree)
        if isinstance(call, ast.Call)
        if (text := ast.unparse(call.func)) == module or text == f"{module}.forward"
    ]
    return bool(calls) and all(is_without_graph(scope_of(at.tree, call.lineno), call.lineno) for call in calls)


def _iterated(loop: ast.For, name: str) -> str | None:
    """`target` of `for p, t in zip(net.parameters(), target.parameters())` and `t`."""
    places, listed = [loop.target], [loop.iter]
    if isinstance(loop.target, ast.Tuple) and isinstance(loop.iter, ast.Call) and called_name(loop.iter) == "zip":
        places, listed = loop.target.elts, loop.iter.args
    for place, value in zip(places, listed, strict=False):
        owner = value.func if isinstance(value, ast.Call) else None
        if holds(place, name) and isinstance(owner, ast.Attribute) and owner.attr in _ITERATED:
            return ast.unparse(owner.value)
    return None
