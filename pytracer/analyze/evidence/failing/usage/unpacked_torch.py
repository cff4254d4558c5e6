"""Values of torch that a line takes apart otherwise than they are: parameters without names, states of an LSTM."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.single_tensors import returns_one_tensor
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_PAIR, _TRIPLE = 2, 3
_WITHOUT_NAMES = frozenset({"parameters", "buffers", "modules", "children"})
_RECURRENT = ("LSTM", "GRU", "RNN")


def unpacked_torch(at: FailingLine, target: ast.expr, value: ast.expr, wanted: int) -> str | None:
    """What the line takes apart, and how it is written for what there is."""
    if not isinstance(value, ast.Call):
        return None
    if isinstance(at.statement, (ast.For, ast.AsyncFor)):
        return _without_names(at, target, value) if wanted == _PAIR else None
    return _states(at, target, value, wanted) or _one_tensor(at, target, value, wanted)


def module_without_name(at: FailingLine) -> str | None:
    """`for i, (name, child) in enumerate(net.children())`: a module cannot be taken apart at all."""
    loop = at.statement
    if at.kind != "TypeError" or "cannot unpack non-iterable" not in at.message or not isinstance(loop, ast.For):
        return None
    target, value = loop.target, loop.iter
    if (
        isinstance(value, ast.Call)
        and called_name(value) == "enumerate"
        and value.args
        and isinstance(target, ast.Tuple)
    ):
        target, value = target.elts[-1], value.args[0]
    pair = isinstance(target, ast.Tuple) and len(target.elts) == _PAIR
    return _without_names(at, target, value) if pair and isinstance(value, ast.Call) else None


def _without_names(at: FailingLine, target: ast.expr, value: ast.Call) -> str | None:
    """`for name, p in model.parameters()`."""
    name, func = called_name(value), value.func
    if name not in _WITHOUT_NAMES or not isinstance(func, ast.Attribute):
        return None
    if any(
        isinstance(item, ast.FunctionDef) and item.name == name for tree in at.files.values() for item in nodes_of(tree)
    ):
        return None  # the program's own may give pairs
    return (
        f"Line {at.line} takes two values of each item, and `{source(value)}` gives each without a name: take "
        f"`{source(target)}` from `{source(func.value)}.named_{name}()`."
    )


def _states(at: FailingLine, target: ast.expr, value: ast.Call, wanted: int) -> str | None:
    """`out, h, c = self.lstm(x)`."""
    made = at.made(value.func, calls=False) if wanted == _TRIPLE else None
    layer = called_name(made.node) if made is not None and isinstance(made.node, ast.Call) else None
    if made is None or layer not in _RECURRENT or not isinstance(target, ast.Tuple):
        return None
    out, first, second = map(source, target.elts)
    lstm = layer == "LSTM"
    pair = f"{out}, ({first}, {second})" if lstm else f"{out}, {first}"
    states = "the second is the tuple of both states" if lstm else "there is one state"
    kind = f"{'a' if layer == 'GRU' else 'an'} {layer}"
    return (
        f"`{source(value.func)}` ({at.shown(made)}) is {kind}, which gives 2 values, and line {at.line} takes 3: "
        f"{states}. Write `{pair} = {source(value)}`."
    )


def _one_tensor(at: FailingLine, target: ast.expr, value: ast.Call, wanted: int) -> str | None:
    """`recon, mu, logvar = vae(x)`, where forward() returns the first alone: it is taken apart by its rows."""
    spot = at.slice.spot(0)
    found = at.slice.function(value, spot) if spot is not None else None
    if found is None or spot is None or not returns_one_tensor(at.slice, value, spot):
        return None
    function, inside = found
    returns = [item for item in own_nodes(function) if isinstance(item, ast.Return)]
    if len(returns) != 1 or returns[0].value is None:
        return None
    if any(isinstance(item, (ast.List, ast.Tuple, ast.ListComp)) for item in nodes_of(returns[0].value)):
        return None  # `torch.stack([x, y])` may be meant to be taken apart
    place = at.place(inside, returns[0].lineno)
    first = target.elts[0] if isinstance(target, (ast.Tuple, ast.List)) and target.elts else target
    return (
        f"`{source(target)}` takes {wanted} values at line {at.line}, and {function.name}() returns one tensor "
        f"({place}: `{source(returns[0])}`), which is taken apart by its rows: return {wanted} there, or take it whole "
        f"at line {at.line} (`{source(first)} = ...`)."
    )
