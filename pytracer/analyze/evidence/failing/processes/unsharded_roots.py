"""Parameters of a module of fully_shard() that are plain tensors: a forward() without a backward() left them whole.

FSDP2 does not shard the outermost module again after its forward(), as the backward() needs its parameters first
(torch 2.13, torch/distributed/fsdp/_fully_shard/_fully_shard.py: reshard_after_forward=None).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import structs

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import sizes_in
from pytracer.analyze.evidence.slicing.calls import argument_of
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, passed_values, without_wrappers
from pytracer.analyze.evidence.syntax.names import elements, holds
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, parameters, spans

_FULLY, _OPTION = "fully_shard", "reshard_after_forward"
_GATHERS = frozenset({"unshard", "register_fsdp_forward_method", "reshard", "set_reshard_after_forward"})
_LISTS = ("list", "tuple", "tqdm", "iter")
_PARAMETERS, _NAMED = "parameters", "named_parameters"
_PAIR = 2


class _Root(msgspec.Struct, frozen=True):
    """`module`: what has the parameters, as the failing line calls it. `held`: what the functions before call it."""

    module: ast.expr
    shard: ast.Call
    spot: Spot
    held: tuple[tuple[ast.AST, Spot], ...]


def unsharded_root(at: FailingLine, sharded: str, plain: Sequence[str]) -> str | None:
    """What to do where the plain operand is a parameter of a sharded module, of the same shape as the DTensor."""
    calls = {called_name(item) for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.Call)}
    if len(plain) != 1 or calls & _GATHERS or any((item.function or "").endswith("forward") for item in at.frames):
        return None
    name = plain[0]
    shape = at.shape(name)
    root = _root(at, name)
    whole = sizes_in(at.values[sharded].partition("[")[2].partition("]")[0])
    if root is None or shape is None or shape.sizes != whole:
        return None
    option = keyword_value(root.shard, _OPTION)
    if keyword_value(root.shard, "ignored_params") is not None or (
        option is not None and not (isinstance(option, ast.Constant) and not option.value)
    ):
        return None
    place = at.place(root.spot, root.shard.lineno)
    run = _run_without_backward(at, root)
    ran, likely = (f", as line {run} leaves it", "") if run else ("", "most likely ")
    call, module = source(root.shard.func), source(root.module)
    return (
        f"`{name}`, a parameter of `{module}`, is {likely}whole since a forward() without a backward() behind it{ran}, "
        f"and `{sharded}` is a DTensor: {call}() ({place}) does not shard the outermost module again after its "
        f"forward(). Call `{module}.reshard()` before its parameters are used, or pass {_OPTION}=True there."
    )


def _root(at: FailingLine, name: str) -> _Root | None:
    """The module whose parameters a loop of the failing line goes over, where fully_shard() was called for it."""
    spot = at.slice.spot(0)
    owner = _owner(spot, name) if spot is not None else None
    if owner is None or spot is None:
        return None
    made = at.slice.made(owner, spot, calls=True)
    held = ((owner, spot), *made.through)
    if isinstance(made.node, ast.Call) and called_name(made.node) == _FULLY:
        return _Root(owner, made.node, made.spot, held)
    shard = _in_place(made, held)
    return _Root(owner, shard[0], shard[1], held) if shard is not None else None


def _in_place(made: Made, held: Sequence[tuple[ast.AST, Spot]]) -> tuple[ast.Call, Spot] | None:
    """`fully_shard(model)` as a statement: it changes the module that it is given."""
    for node, spot in (*held, (made.node, made.spot)):
        for item in own_nodes(spot.scope):
            if not isinstance(item, ast.Call) or called_name(item) != _FULLY or item.lineno >= spot.line:
                continue
            if item.args and ast.unparse(item.args[0]) == ast.unparse(node):
                return item, structs.replace(spot, line=item.lineno)
    return None


def _owner(spot: Spot, name: str) -> ast.expr | None:
    """`model` of `for avg, p in zip(shadow, model.parameters())`, of `p`."""
    for target, values in _loops(spot):
        if not holds(target, name):
            continue
        inner = without_wrappers(values, _LISTS)
        if isinstance(inner, ast.Call) and called_name(inner) == "enumerate" and inner.args:
            target, inner = elements(target)[-1], without_wrappers(inner.args[0], _LISTS)
        if isinstance(inner, ast.Call) and called_name(inner) == "zip" and len(elements(target)) == len(inner.args):
            pairs = zip(elements(target), inner.args, strict=True)
            target, inner = next(((part, given) for part, given in pairs if holds(part, name)), (target, inner))
        if not isinstance(inner, ast.Call) or not isinstance(inner.func, ast.Attribute):
            return None
        named = called_name(inner) == _NAMED and len(elements(target)) == _PAIR and holds(elements(target)[1], name)
        return inner.func.value if named or called_name(inner) == _PARAMETERS else None
    return None


def _loops(spot: Spot) -> Iterator[tuple[ast.expr, ast.expr]]:
    for item in own_nodes(spot.scope):
        if isinstance(item, (ast.For, ast.AsyncFor)) and spans(item, spot.line):
            yield item.target, item.iter
        elif isinstance(item, ast.expr) and spans(item, spot.line):
            yield from ((head.target, head.iter) for head in getattr(item, "generators", []))


def _run_without_backward(at: FailingLine, root: _Root) -> str | None:
    """The last line of a running function that calls the module, or passes it on, where no backward() is behind it."""
    for node, spot in reversed(root.held):
        if spot.depth is None or not isinstance(node, (ast.Name, ast.Attribute)):
            continue
        text = ast.unparse(node)
        calls = [item for item in own_nodes(spot.scope) if isinstance(item, ast.Call) and item.lineno < spot.line]
        runs = [item for item in calls if ast.unparse(item.func) == text or _runs_it(at, item, spot, text)]
        backwards = [item.lineno for item in calls if called_name(item) == "backward"]
        last = max(runs, key=lambda item: item.lineno, default=None)
        if last is not None and not any(line >= last.lineno for line in backwards) and not _trains(at, last, spot):
            at.place(spot, last.lineno)
            return f"{last.lineno} (`{source(last)}`)"
    return None


def _runs_it(at: FailingLine, call: ast.Call, spot: Spot, text: str) -> bool:
    """Whether a function of the program is given the module, and calls it."""
    if text not in map(ast.unparse, passed_values(call)):
        return False
    found = at.slice.function(call, structs.replace(spot, line=call.lineno))
    if found is None:
        return False
    names = [name for name in parameters(found[0]) if ast.unparse(argument_of(call, found[0], name) or call) == text]
    return any(isinstance(item, ast.Call) and ast.unparse(item.func) in names for item in own_nodes(found[0]))


def _trains(at: FailingLine, call: ast.Call, spot: Spot) -> bool:
    """Whether the function that is called has a backward() of its own."""
    found = at.slice.function(call, structs.replace(spot, line=call.lineno))
    inner = (item for item in nodes_of(found[0]) if isinstance(item, ast.Call)) if found is not None else ()
    return any(called_name(item) == "backward" for item in inner)
