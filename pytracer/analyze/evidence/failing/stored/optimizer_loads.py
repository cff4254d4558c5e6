"""The line that loads the state of the optimizer whose step() failed: where it was made, or wherever it went since."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.bindings import is_demonstration
from pytracer.analyze.evidence.slicing.callers import called_function, calls_named
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.spots import END, Made, Spot, name_made
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.loops import LOOPS, deciding_ifs, last_of, loops_around
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.reaching import places_that_bind
from pytracer.analyze.evidence.syntax.scopes import (
    Scope,
    class_around,
    own_nodes,
    parameters,
    scope_of,
    spans,
    spans_body,
)

_LOAD = "load_state_dict"
_MAKES = ("__init__", "__post_init__")  # run wherever there is an object


class OptimizerLoad(msgspec.Struct, frozen=True):
    """`name`: what the optimizer is called at the call. `maybe`: whether a condition decides that it runs."""

    call: ast.Call
    spot: Spot
    name: str
    maybe: bool


class _Held(msgspec.Struct, frozen=True):
    """What the optimizer is called in a scope, between two lines."""

    name: str
    spot: Spot
    since: int
    until: int


def optimizer_load(at: FailingLine, made: Made) -> OptimizerLoad | None:
    """The only one; `made`: what the optimizer was made by, followed from the failing line."""
    found = {id(item.call): item for held in _held(made) for item in _loads(at, held)}
    return next(iter(found.values())) if len(found) == 1 else None


def _held(made: Made) -> Iterator[_Held]:
    """In the failing function and its callers as far as they passed it on, and in what made it."""
    seen: set[tuple[int, str]] = set()
    for node, spot in made.through:
        name = variable(node)
        if name is not None and (id(spot.scope), name) not in seen:
            seen.add((id(spot.scope), name))
            bound = (line for line in places_that_bind(spot.scope, name) if line < spot.line)
            yield _Held(name, spot, max(bound, default=0), spot.line)
    name = name_made(made)
    if name is not None and (id(made.spot.scope), name) not in seen:
        yield _Held(name, made.spot, made.line, END)


def _loads(at: FailingLine, held: _Held) -> Iterator[OptimizerLoad]:
    scope, name = held.spot.scope, held.name
    for item in own_nodes(scope):
        if not isinstance(item, ast.Call) or not _runs_between(scope, held, item.lineno):
            continue
        maybe = _is_conditional(held.spot.tree, item.lineno, held.until)
        if _is_load(item, name):
            yield OptimizerLoad(item, held.spot, name, maybe)
        else:
            yield from _loads_of_helper(at, held, item, maybe)
    owner = class_around(held.spot.tree, scope) if name.startswith("self.") else None
    for item in nodes_of(owner) if owner is not None else ():
        if isinstance(item, ast.Call) and _is_load(item, name):
            yield _load_of_method(at, held, item)
    if owner is not None:
        yield from _loads_of_object(at, held, owner)


def _loads_of_object(at: FailingLine, held: _Held, owner: ast.ClassDef) -> Iterator[OptimizerLoad]:
    """`trainer.opt.load_state_dict(state)`, where `trainer = Trainer(config)`, or `cls(config)` in a method of it."""
    end = f".{held.name.removeprefix('self.')}"
    for file, tree in at.files.items():
        for item in nodes_of(tree):
            if not isinstance(item, ast.Call) or not isinstance(item.func, ast.Attribute) or not _loads_something(item):
                continue
            name = ast.unparse(item.func.value)
            if not name.endswith(end) or not name.removesuffix(end).isidentifier() or name == held.name:
                continue
            scope = scope_of(tree, item.lineno)
            if not _is_object_of(scope, name.removesuffix(end), owner, class_around(tree, scope)):
                continue
            calls = calls_named(at.files, getattr(scope, "name", ""))
            runs = isinstance(scope, ast.Module) or any(not _is_conditional(home, one.lineno) for _, home, one in calls)
            maybe = not runs or _is_conditional(tree, item.lineno)
            yield OptimizerLoad(item, Spot(file, tree, scope, item.lineno), name, maybe)


def _is_object_of(scope: Scope, name: str, owner: ast.ClassDef, around: ast.ClassDef | None) -> bool:
    makers = (owner.name, "cls") if around is owner else (owner.name,)
    made = [value for _, value in lines_that_bind(scope, name)]
    return bool(made) and all(isinstance(item, ast.Call) and called_name(item) in makers for item in made)


def _load_of_method(at: FailingLine, held: _Held, call: ast.Call) -> OptimizerLoad:
    """`self.optimizer.load_state_dict(state)`, wherever its class has it."""
    tree, line = held.spot.tree, call.lineno
    method = scope_of(tree, line)
    if method is held.spot.scope:
        return OptimizerLoad(call, held.spot, held.name, _is_conditional(tree, line, held.until))
    name = getattr(method, "name", "")
    calls = calls_named(at.files, name)
    runs = name in _MAKES or any(not _is_conditional(home, item.lineno) for _, home, item in calls)
    spot = Spot(held.spot.file, tree, method, line)
    return OptimizerLoad(call, spot, held.name, not runs or _is_conditional(tree, line))


def _loads_of_helper(at: FailingLine, held: _Held, call: ast.Call, maybe: bool) -> Iterator[OptimizerLoad]:
    """`resume(path, model, optimizer)`: of the program's own function that it is passed to."""
    given = (*call.args, *(item.value for item in call.keywords))
    if not any(variable(item) == held.name for item in given):
        return
    found = called_function(at.files, held.spot.tree, call)
    if found is None:
        return
    file, function = found
    for parameter in parameters(function):
        passed = argument_of(call, function, parameter)
        if passed is None or variable(passed) != held.name:
            continue
        for item in own_nodes(function):
            if isinstance(item, ast.Call) and _is_load(item, parameter):
                inner = Spot(file, at.files[file], function, item.lineno, call=(call, held.spot))
                yield OptimizerLoad(item, inner, parameter, maybe or _is_conditional(at.files[file], item.lineno))


def _is_load(call: ast.Call, name: str) -> bool:
    return _loads_something(call) and isinstance(call.func, ast.Attribute) and variable(call.func.value) == name


def _loads_something(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == _LOAD and bool(call.args)


def _runs_between(scope: Scope, held: _Held, line: int) -> bool:
    """Whether it is below what made or passed it on, and above the line that used it, or in a loop with that."""
    if held.since < line < held.until:
        return True
    loops = (item for item in own_nodes(scope) if isinstance(item, LOOPS))
    return held.since < line and any(spans(item, line) and spans(item, held.until) for item in loops)


def _is_conditional(tree: ast.Module, line: int, until: int = END) -> bool:
    """Whether an `if` may have left it out. `until`: a line of its function that ran behind it, where that is known.

    `if __name__ == "__main__"` has not, nor one that raises.
    """
    scope = scope_of(tree, line)
    short = (item for item in own_nodes(scope) if isinstance(item, ast.If) and item.lineno == line)
    ifs = [*deciding_ifs(tree, line), *((item, True) for item in short if spans_body(item.body, line))]
    return any(_may_leave_out(tree, item, line, until) if around else _may_leave(tree, item, until)
               for item, around in ifs)  # fmt: skip


def _may_leave_out(tree: ast.Module, item: ast.If, line: int, until: int) -> bool:
    arms = (arm for arm in (item.body, item.orelse) if spans_body(arm, line) and spans_body(arm, until))
    return next(arms, None) is None and not (item in tree.body and is_demonstration(tree, line))


def _may_leave(tree: ast.Module, item: ast.If, until: int) -> bool:
    """Before the line, by `return`, `continue` or `break`."""
    last = last_of(item.body)
    if isinstance(last, ast.Return):
        return until == END
    return isinstance(last, (ast.Continue, ast.Break)) and not any(
        spans(loop, item.lineno) for loop in (loops_around(tree, until) if until != END else ())
    )
