"""Several forwards of the wrapped model before one backward(): lines of one round, the rounds of a loop, or helpers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

import msgspec
from msgspec.structs import replace

from pytracer.analyze.evidence.failing.autograd.graph_lines import enters_mode
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.callers import called_function
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.cut_values import names_switch
from pytracer.analyze.evidence.syntax.loops import COMPREHENSIONS, LOOPS, loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, parameters

_WRAPPERS = ("DDP", "DistributedDataParallel")
_MOST_FRAMES = 3


class SeveralForwards(msgspec.Struct, frozen=True):
    """`model`() is called at `where`, and `backward` is the line of the one backward() behind."""

    model: str
    where: str
    backward: str

    @property
    def summary(self) -> str:
        """`net() is called at lines 9 and 10`."""
        return f"{self.model}() is called {self.where}"


class _Forward(msgspec.Struct, frozen=True):
    """`model` is called by `call`, itself or in the function of `inside`; in each round of `loop`."""

    model: str
    call: ast.Call
    loop: int | None
    inside: str | None


def several_forwards(at: FailingLine) -> SeveralForwards | None:
    """Of the innermost function of the program that calls the model at all."""
    for depth in range(min(len(at.frames), _MOST_FRAMES)):
        spot = at.slice.spot(depth)
        if spot is None:
            return None
        forwards: list[_Forward] = []
        for item in _forwards(at, spot):
            if not any(excludes(spot.scope, item.call, other.call) for other in forwards):
                forwards.append(item)
        if forwards:
            return _several(at, spot, forwards)
    return None


def excludes(scope: ast.AST, one: ast.Call, other: ast.Call) -> bool:
    """Whether they lie in two branches of one `if`."""
    for item in own_nodes(scope):
        if isinstance(item, ast.If) and item.orelse:
            inside = [any(call in [*nodes_of(part)] for part in item.body) for call in (one, other)]
            behind = [any(call in [*nodes_of(part)] for part in item.orelse) for call in (one, other)]
            if (inside[0] and behind[1]) or (inside[1] and behind[0]):
                return True
    return False


def _several(at: FailingLine, spot: Spot, forwards: list[_Forward]) -> SeveralForwards | None:
    models = {item.model for item in forwards}
    lines = sorted(item.call.lineno for item in forwards)
    others = [item.lineno for item in own_nodes(spot.scope) if _is_backward(item)]
    if len(models) > 1 or any(lines[0] <= line < spot.line for line in others):
        return None
    backward = at.in_file(spot.file, spot.line)
    if len(lines) > 1:
        several = [*dict.fromkeys(lines)]
        before = ", ".join(map(str, several[:-1]))
        where = f"at lines {before} and {several[-1]}" if before else f"{len(lines)} times at line {lines[0]}"
        return SeveralForwards(models.pop(), f"{where}{_inside(forwards)}", backward)
    first = forwards[0]
    if first.loop is None:
        return None
    head = "" if first.loop == first.call.lineno else f" of the loop of line {first.loop}"
    where = f"in each round{head} ({at.in_file(spot.file, first.call.lineno)})"
    return SeveralForwards(first.model, f"{where}{_inside(forwards)}", backward)


def _inside(forwards: list[_Forward]) -> str:
    functions = {item.inside for item in forwards}
    only = functions.pop() if len(functions) == 1 else None
    return f", in {only}()" if only is not None else ""


def _forwards(at: FailingLine, spot: Spot) -> Iterator[_Forward]:
    """Above the line, in its round, with a graph."""
    loops = loops_around(spot.tree, spot.line)
    first = loops[-1].lineno if loops else 0
    quiet = _below_mode(spot.scope)
    quiet |= {id(item.value) for item in own_nodes(spot.scope) if isinstance(item, ast.Attribute) and _is_cut(item)}
    for call in own_nodes(spot.scope):
        if not isinstance(call, ast.Call) or id(call) in quiet or not first < call.lineno <= spot.line:
            continue
        if call.lineno == spot.line and not _is_below_backward(spot, call):
            continue
        model, inside = _model(at, call, spot), None
        if model is None:
            model, inside = _by_helper(at, call, spot)
        if model is not None:
            yield _Forward(model, call, _round(spot, call, len(loops)), inside)


def _model(at: FailingLine, call: ast.Call, spot: Spot) -> str | None:
    """The expression that is called, where it is the wrapped model."""
    func = call.func
    if not isinstance(func, (ast.Name, ast.Attribute)) or variable(func) is None:
        return None
    here = replace(spot, line=call.lineno)
    return source(func) if _wraps(at.slice.made(func, here, calls=False).node) else None


def _by_helper(at: FailingLine, call: ast.Call, spot: Spot) -> tuple[str | None, str | None]:
    """The model, and the function of the program that is called, and that calls it once as its parameter or `self.x`.

    None where that function runs the backward itself.
    """
    found = called_function(at.files, spot.tree, call)
    if (
        found is None
        or found[1] is spot.scope
        or any(map(_is_backward, own_nodes(found[1])))
        or _is_decorated(found[1])
    ):
        return None, None
    home, function = found
    names, quiet = parameters(function), _below_mode(function)
    inner = Spot(home, at.files[home], function, function.lineno, call=(call, replace(spot, line=call.lineno)))
    for item in own_nodes(function):
        name = variable(item.func) if isinstance(item, ast.Call) and id(item) not in quiet else None
        if not isinstance(item, ast.Call) or name is None:
            continue
        if name in names:
            given = argument_of(call, function, name)
            here = replace(spot, line=call.lineno)
            if given is not None and _wraps(at.slice.made(given, here, calls=False).node):
                return source(given), function.name
        elif name.startswith("self.") and _model(at, item, inner) is not None:
            return name, function.name
    return None, None


def _round(spot: Spot, call: ast.Call, outer: int) -> int | None:
    """The head of a loop around the call that does not have the backward()."""
    inner = loops_around(spot.tree, call.lineno, LOOPS)[outer:]
    if inner:
        return inner[-1].lineno
    for item in own_nodes(spot.scope):
        if isinstance(item, COMPREHENSIONS) and any(part is call for part in nodes_of(item)):
            first = item.generators[0].iter
            return item.lineno if all(part is not call for part in nodes_of(first)) else None
    return None


def _is_below_backward(spot: Spot, call: ast.Call) -> bool:
    """`sum(net(x) for x in parts).backward()`."""
    calls = (item for item in own_nodes(spot.scope) if _is_backward(item))
    return any(part is call for item in calls for part in nodes_of(item.func))


def _is_backward(item: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(item, ast.Call) and called_name(item) == "backward"


def _below_mode(scope: ast.AST) -> set[int]:
    """The parts of each `with torch.no_grad():`."""
    return {id(part) for item in own_nodes(scope) if enters_mode(item) for part in nodes_of(item)}


def _is_cut(item: ast.Attribute) -> bool:
    """`net(x).detach()`."""
    return item.attr == "detach" and isinstance(item.value, ast.Call)


def _is_decorated(function: ast.AST) -> bool:
    """`@torch.no_grad()`."""
    return any(map(names_switch, getattr(function, "decorator_list", [])))


def _wraps(value: ast.AST) -> bool:
    return any(isinstance(part, ast.Call) and called_name(part) in _WRAPPERS for part in nodes_of(value))
