"""An index that the program drew from logits, or took as their largest: they are wider than the table has rows."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import short, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import Shape, shape_of
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes

_DRAWS = frozenset({"multinomial", "argmax", "topk", "max"})
_OF_LIBRARIES = frozenset({"torch", "F", "np", "numpy"})
_HIGHEST = Pattern(r"^(?:\[[\d, ]*\] \w+, -?\d+\.\.)?(\d+)$")


def drawn_index(at: FailingLine, rows: int, high: int) -> str | None:
    """The end of a sentence that begins with the table; None where no such value is recorded as drawn.

    Args:
        at: The line that looks rows up.
        rows: That the table has.
        high: The index that is beyond them.
    """
    for depth in range(len(at.frames)):
        spot = at.slice.spot(depth)
        for name, line, call in _draws(spot) if spot is not None else ():
            held = _HIGHEST.match(at.values_at(depth).get(name, ""))
            made = _drawn_from(at, call, depth) if held is not None and int(held[1]) == high else None
            if spot is not None and made is not None and made[1].sizes[-1] > high:
                return _words(at, spot, line, call, made, rows)
    return None


def _words(at: FailingLine, spot: Spot, line: int, call: ast.Call, made: tuple[str, Shape], rows: int) -> str:
    of, shape = made
    own = ""
    if at.layer is not None and at.layer.options.get("embedding_dim") == shape.sizes[-1]:
        own = f", or rows of {rows} to the table, if these are the logits"
    return (
        f", taken from `{of}` {shape.words}: {at.place(spot, line)} (`{short(ast.unparse(call))}`) chooses among "
        f"{shape.sizes[-1]} logits, and there are {rows} rows. Both must be as many as the vocabulary has: give {rows} "
        f"outputs to the layer that makes the logits{own}. A larger table is right only where the vocabulary has "
        f"{shape.sizes[-1]}."
    )


def _draws(spot: Spot) -> Iterator[tuple[str, int, ast.Call]]:
    """The variables of a function that hold what was drawn, with the line and the call."""
    for node in own_nodes(spot.scope):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target = node.targets[0]
        names = [variable(item) for item in target.elts] if isinstance(target, ast.Tuple) else [variable(target)]
        calls = [item for item in nodes_of(node.value) if isinstance(item, ast.Call) and _from(item) is not None]
        if len(calls) == 1:
            yield from ((name, node.lineno, calls[0]) for name in names if name is not None and name != "_")


def _from(call: ast.Call) -> ast.expr | None:
    """`probs` of `torch.multinomial(probs, 1)`, `probs.argmax(-1)` and `Categorical(probs=probs).sample()`."""
    name, owner = called_name(call), call.func.value if isinstance(call.func, ast.Attribute) else None
    if name == "sample" and isinstance(owner, ast.Call) and called_name(owner) == "Categorical":
        return keyword_value(owner, "logits", "probs") or next(iter(owner.args), None)
    if name not in _DRAWS or owner is None:
        return None
    if isinstance(owner, ast.Name) and owner.id in _OF_LIBRARIES:
        return next(iter(call.args), None) or keyword_value(call, "input")
    return owner


def _drawn_from(at: FailingLine, call: ast.Call, depth: int) -> tuple[str, Shape] | None:
    """The recorded tensor in what it was drawn from, such as `logits` of `logits[:, -1]`."""
    node = _from(call)
    names = [found for item in nodes_of(node) if (found := variable(item)) is not None] if node is not None else []
    shapes = [(name, shape) for name in names if (shape := shape_of(at.values_at(depth).get(name))) is not None]
    floats = [(name, shape) for name, shape in shapes if shape.sizes and "float" in shape.dtype]
    return (source(ast.parse(floats[0][0], mode="eval").body), floats[0][1]) if len(floats) == 1 else None
