"""A graph that one step carries into the next, which backward() has freed."""

from __future__ import annotations

import ast
import re

from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.autograd.graph_lines import bound_names, is_below_cut
from pytracer.analyze.evidence.failing.expressions import names_in
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import PLAIN_LOOPS, Loop, loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import is_parameter

# What has no graph: data, and tensors that are filled.
_LEAF = Pattern(
    r"torch\.(?:\w*rand\w*|zeros|ones|tensor|full|empty|arange|linspace|load|from_numpy)\(|next\(|\.to\(|\bin\b"
)
_WHOLE = Pattern(r"^(?:u?int\d+|bool)$")


def carried_graph(at: FailingLine) -> str | None:
    """A variable that an iteration takes over from the one before."""
    loops = loops_around(at.tree, at.line, PLAIN_LOOPS)
    if not loops:
        return None
    carried: dict[str, int] = {}
    assigned = {name for item in loops if isinstance(item, ast.For) for name in bound_names(item.target)}
    reached = _reached(loops[0], at.names)
    for item in _in_order(loops[0]):
        if isinstance(item, ast.Assign):
            read = set(names_in(item.value))
            targets = {name for target in item.targets for name in bound_names(target)}
            for name in (read & targets) - assigned:
                if "detach" not in ast.unparse(item.value):
                    carried.setdefault(name, item.lineno)
            assigned |= targets
        elif isinstance(item, ast.AugAssign):
            name = variable(item.target) or ""
            if name and name not in assigned and not re.search(r"item\(\)|detach", ast.unparse(item.value)):
                carried.setdefault(name, item.lineno)
    tensors = {
        name: line
        for name, line in carried.items()
        if name in reached and not is_below_cut(loops[0], line)
        if (shape := at.shape(name)) is not None or at.value(name) is None
        if shape is None or not _WHOLE.match(shape.dtype)
    }
    if len(tensors) == 1:
        name, line = next(iter(tensors.items()))
        added = _added(loops[0], name, line)
        if added is not None and name in at.names:
            return (
                f"`{name}` ({at.here(line)}) adds up the losses of all steps with their graphs, and backward() has "
                f"freed those of earlier ones: call backward() on what a step adds, `{added}.backward()`, and let line "
                f"{line} add `{added}.item()`."
            )
        return (
            f"`{name}` ({at.here(line)}) carries the graph of one step into the next, which backward() "
            "has freed: write "
            f"`{name} = {name}.detach()` at the start of each step (of a tuple, each of its tensors)."
        )
    return _before_loop(at, loops)


def _added(loop: Loop, name: str, line: int) -> str | None:
    """`loss` of `total += loss` and of `total = total + loss`."""
    for item in _in_order(loop):
        value = item.value if isinstance(item, (ast.Assign, ast.AugAssign)) and item.lineno == line else None
        if isinstance(item, ast.AugAssign) and isinstance(item.op, ast.Add) and isinstance(value, ast.Name):
            return value.id
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
            sides = [part.id for part in (value.left, value.right) if isinstance(part, ast.Name)]
            others = [part for part in sides if part != name]
            if name in sides and len(others) == 1 and len(sides) == 2:
                return others[0]
    return None


def _is_leaf(at: FailingLine, name: str) -> bool:
    """Whether it was made from no other tensor, or is not known to have been."""
    if _by_layer(at, name) is not None:
        return False
    found = at.came_from(name)
    return found is None or _LEAF.search(found.text) is not None


def _before_loop(at: FailingLine, loops: list[Loop]) -> str | None:
    """What was computed once, before the loop, and before those around it."""
    loop = loops[0]
    inside = {
        name
        for item in _in_order(loop)
        if isinstance(item, ast.Assign)
        for target in item.targets
        for name in bound_names(target)
    } | {name for item in nodes_of(loop) if isinstance(item, ast.For) for name in bound_names(item.target)}
    named = at.names
    shapes = [name for name in _reached(loop, named) if name not in inside and at.shape(name) is not None]
    shapes = [name for name in shapes if name in named or not _is_leaf(at, name)]
    if len(shapes) != 1 or _is_freed_in_round(loop) or _is_cut(loop, shapes[0]):
        return None
    name, by = shapes[0], _by_layer(at, shapes[0])
    made = at.begun(name) if by is not None else at.came(name)
    begin = (
        f"`{name}`{made} was computed once, before the loop at {at.here(loops[-1].lineno)}, and backward() frees "
        "its graph in the first round"
    )
    if by is None or by[0] in map(variable, nodes_of(loop)):
        return f"{begin}: compute it in each round."
    layer, spot = by
    return (
        f"{begin}: compute it below `with torch.no_grad():` at {at.place(spot, spot.line)}, or detach() it there; if "
        f"`{layer}` is to be trained in that loop, call it in each round."
    )


def _is_freed_in_round(loop: Loop) -> bool:
    """Whether one round calls backward() of the same twice, and may have met its own graph again."""
    calls = [ast.unparse(item.func) for item in nodes_of(loop)
             if isinstance(item, ast.Call) and called_name(item) == "backward"]  # fmt: skip
    return len(calls) > len({*calls})


def _is_cut(loop: Loop, name: str) -> bool:
    """Whether the loop reads it by `name.detach()` only."""
    reads = sum(variable(item) == name for item in nodes_of(loop))
    cuts = sum(isinstance(item, ast.Attribute) and item.attr in ("detach", "data") and variable(item.value) == name
               for item in nodes_of(loop))  # fmt: skip
    return 0 < reads == cuts


def _by_layer(at: FailingLine, name: str) -> tuple[str, Spot] | None:
    """The module that made a variable, and where."""
    bound = _bound_before(at, name)
    layer = _layer(at, *bound) if bound is not None else None
    return (layer, bound[1]) if bound is not None and layer is not None else None


def _bound_before(at: FailingLine, name: str) -> tuple[ast.AST, Spot] | None:
    """The only line that sets a variable, or the one of the callers that is passed for it."""
    spot = at.slice.spot(0)
    while spot is not None and is_parameter(spot.scope, name):
        step = at.slice.argument(name, spot)
        inner = variable(step[0]) if step is not None else None
        if step is None or inner is None:
            return None
        name, spot = inner, step[1]
    bound = lines_that_bind(spot.scope, name) if spot is not None else []
    if spot is None or len(bound) != 1 or bound[0][1] is None:
        return None
    return bound[0][1], structs.replace(spot, line=bound[0][0])


def _layer(at: FailingLine, node: ast.AST, spot: Spot) -> str | None:
    """`net` of `net(x)` and of `net.encode(x)`: a module that made it."""
    if not isinstance(node, ast.Call):
        return None
    if at.slice.is_layer(node.func, spot):
        return ast.unparse(node.func)
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    return ast.unparse(owner) if owner is not None and at.slice.is_layer(owner, spot) else None


def _reached(loop: Loop, names: list[str]) -> list[str]:
    """Those names, and what the loop computes them from."""
    made = [item for item in _in_order(loop) if isinstance(item, (ast.Assign, ast.AugAssign))]
    found = dict.fromkeys(names)
    for item in [*reversed(made), *reversed(made)]:  # also what a round takes over from the one before
        targets = item.targets if isinstance(item, ast.Assign) else [item.target]
        if any(name in found for target in targets for name in bound_names(target)):
            found |= dict.fromkeys(names_in(item.value))
    return [*found]


def _in_order(loop: ast.stmt) -> list[ast.stmt]:
    return sorted((item for item in nodes_of(loop) if isinstance(item, ast.stmt)), key=lambda item: item.lineno)
