"""BatchNorm in training with one sample that is meant to be alone: a prediction, or batches of one."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.data.loaders import ONE_VALUE, looped_loaders
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.constants import is_none
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans

_MAKES = ("zeros", "ones", "rand", "randn", "empty")
_OF_ONE = Pattern(r"DataLoader, batch_size=1,")


def lone_sample(at: FailingLine) -> str | None:
    """What to do where a line of the stack makes a batch of one sample, or its loader has batches of one."""
    if ONE_VALUE.search(at.message) is None:
        return None
    for depth in range(len(at.frames)):
        spot = at.slice.spot(depth)
        call = _of_one_sample(at, spot) if spot is not None else None
        if spot is not None and call is not None:
            if any(isinstance(item, ast.Call) and called_name(item) == "backward" for item in own_nodes(spot.scope)):
                return None  # it is training
            model = source(call.func)
            owner = "the model" if model.startswith("self") and model.count(".") == 0 else f"`{model}`"
            return (
                f"`{short(ast.unparse(call))}` ({at.place(spot, call.lineno)}) gives a single sample to {owner} in "
                "training mode, in which BatchNorm needs more: call its .eval() before, and .train() before training "
                "goes on."
            )
    loop = next((item for item in looped_loaders(at) if _OF_ONE.match(item[1])), None)
    if loop is None:
        return None
    return (
        f"`{loop[0]}` has batch_size=1, so that each batch has one sample, and BatchNorm in training needs more than "
        "one value per channel (a map of 1 x 1 has one): take a larger batch_size, or a norm that needs no batch "
        "(GroupNorm, LayerNorm); for inference call the model's .eval() first. drop_last=True does not help."
    )


def _of_one_sample(at: FailingLine, spot: Spot) -> ast.Call | None:
    """`net(row.unsqueeze(0))`, `net(row[None])`, `net(torch.zeros(1, 3))`, also by a variable that was made so."""
    for call in own_nodes(spot.scope):
        if not isinstance(call, ast.Call) or not spans(call, spot.line):
            continue
        given = passed_values(call)
        made = at.slice.made(given[0], spot, calls=False) if len(given) == 1 else None
        if made is not None and (_adds_batch(given[0]) or (made.spot.scope is spot.scope and _adds_batch(made.node))):
            return call  # made here: what a caller passes is given to a whole model there
    return None


def _adds_batch(node: ast.AST) -> bool:
    while isinstance(node, ast.Call) and called_name(node) in ("to", "cuda", "float"):
        node = node.func.value if isinstance(node.func, ast.Attribute) else node.func
    if isinstance(node, ast.Call) and called_name(node) == "unsqueeze":
        return any(isinstance(item, ast.Constant) and item.value == 0 for item in nodes_of(node))
    if isinstance(node, ast.Call) and called_name(node) in _MAKES and node.args:
        sizes = node.args[0].elts if isinstance(node.args[0], (ast.Tuple, ast.List)) else node.args
        return len(sizes) > 1 and isinstance(sizes[0], ast.Constant) and sizes[0].value == 1
    if not isinstance(node, ast.Subscript):
        return False
    index = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
    return is_none(index)
