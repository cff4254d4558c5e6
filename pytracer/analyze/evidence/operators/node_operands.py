"""Which variables of the failing line's function went into the layer whose backward failed.

The engine runs the backward by itself: its tensors have no names, and not all that the function holds went into it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.operators.in_backward import in_engine
from pytracer.analyze.evidence.slicing.calls import MADE_ON_CALL, argument_of
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_QUOTED = 60
_MODULES = ("torch", "F", "nn")


class NodeOperands(msgspec.Struct, frozen=True):
    """`names`: of the failing function, which went into `call`, `` `self.items(items, offsets)` at line 45 ``.

    `begin`: the line of the failing function that calls it, or what calls it.
    """

    names: tuple[str, ...]
    call: LineWords
    begin: LineWords


def node_operands(view: ProcessView) -> NodeOperands | None:
    """None where no backward of a node ran, or where not one call alone is known to have made the node."""
    back = Slice(view.process.snapshot, program_frames(view))
    spot = back.spot(0)
    node = view.crash.node if view.crash is not None else None
    forward = (node or "").partition("Backward")[0].lower()
    if spot is None or not forward or not in_engine(view):
        return None
    found = [(*item, item[0][1].lineno) for item in _calls(back, spot, forward, None)]
    for call in own_nodes(spot.scope):
        if not isinstance(call, ast.Call) or call.lineno > spot.line:
            continue
        function = back.function(call, spot)
        if function is not None and function[0].name in MADE_ON_CALL:
            inside = Spot(function[1].file, function[1].tree, function[0], function[0].lineno, None, (call, spot))
            found += [(*item, call.lineno) for item in _calls(back, inside, forward, (call, function[0]))]
    if len(found) != 1:
        return None
    (at, call), given, begin = found[0]
    if not given:
        return None
    text = shortened(ast.unparse(call), _QUOTED)
    line = place_of(view, at.file, call.lineno).after(f"`{text}` at ")
    return NodeOperands(given, line, place_of(view, spot.file, begin))


def _calls(
    back: Slice, spot: Spot, forward: str, outer: tuple[ast.Call, ast.FunctionDef] | None
) -> Iterator[tuple[tuple[Spot, ast.Call], tuple[str, ...]]]:
    """Calls of a layer or function of that name, with the failing function's variables that they are given."""
    for call in own_nodes(spot.scope):
        if not isinstance(call, ast.Call) or _operator(back, call, spot) != forward:
            continue
        names = []
        for value in passed_values(call):
            held = (
                argument_of(outer[0], outer[1], value.id)
                if outer is not None and isinstance(value, ast.Name)
                else value
            )
            if isinstance(held, ast.Name):
                names.append(held.id)
        yield (spot, call), tuple(names)


def _operator(back: Slice, call: ast.Call, spot: Spot) -> str | None:
    """`embeddingbag` of `F.embedding_bag(...)`, and of an object that `nn.EmbeddingBag(...)` made."""
    name = called_name(call)
    if (
        isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id in _MODULES
    ):
        return (name or "").replace("_", "").lower()
    made = back.made(call.func, spot, calls=False).node
    return (called_name(made) or "").lower() if isinstance(made, ast.Call) else None
