"""An empty part of what was divided into more parts than it has items: `np.array_split(videos, world_size)`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import shape_of
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, without_wrappers
from pytracer.analyze.evidence.syntax.names import holds
from pytracer.analyze.evidence.syntax.scopes import own_nodes, spans

_SPLITS = {"array_split": ("indices_or_sections",), "tensor_split": ("indices_or_sections", "sections")}
_LIBRARIES = ("torch", "np", "numpy")
_RANKS = Pattern(r"world|replica|num_?proc|nprocs|n_?gpus?|num_?gpus|n_?ranks|num_?ranks|shards", re.IGNORECASE)
_HELD = Pattern(r"^(?:list|tuple|str|range) of (\d+)$")


class _Split(msgspec.Struct, frozen=True):
    """`call`: what divides `what` into `parts`."""

    call: ast.Call
    spot: Spot
    what: ast.expr
    parts: ast.expr


def empty_share(at: FailingLine, name: str) -> str | None:
    """Where such a part is the variable that is empty: array_split() gives each of the parts that it is asked for."""
    spot = at.slice.spot(0)
    made = _divided(at, name, spot) if spot is not None else None
    split = _split(at, made) if made is not None else None
    if split is None:
        return None
    items, parts = _count(at, split.what, split.spot), _number(at, split.parts, split.spot)
    if items is not None and parts is not None and parts <= items:
        return None  # another array, of other dimensions
    what, by = source(split.what), source(split.parts)
    place = f"{at.place(split.spot, split.call.lineno)}: `{source(split.call)}`"
    asked = f"{parts} parts" if parts is not None else f"`{by}` parts"
    if items is not None:
        begin = f"the {items} items" if items != 1 else "the only item"
        why = f"{begin} of `{what}` {'are' if items != 1 else 'is'} divided into {asked} ({place})"
    else:
        why = f"`{what}` has fewer items than the {asked} that it is divided into ({place})"
    most = (
        "start no more processes than there are items"
        if _RANKS.search(by) is not None
        else "ask for no more parts than items"
    )
    return f"`{name}` is empty, as {why}. Let line {at.line} take an empty part (`if len({name})`), or {most}."


def _divided(at: FailingLine, name: str, spot: Spot) -> Made | None:
    """What a variable of a loop or a comprehension is a part of, or the value of `split(...)[rank]`."""
    for line, target, values in _loops(spot):
        if holds(target, name):
            inner = without_wrappers(values, ("enumerate", "list", "tuple", "tqdm", "iter", "reversed"))
            return at.slice.made(inner, structs.replace(spot, line=line), calls=True)
    made = at.slice.made(ast.parse(name, mode="eval").body, spot, calls=True)
    if isinstance(made.node, ast.Subscript):
        return at.slice.made(made.node.value, made.spot, calls=True)
    return None


def _loops(spot: Spot) -> Iterator[tuple[int, ast.expr, ast.expr]]:
    for item in own_nodes(spot.scope):
        if isinstance(item, (ast.stmt, ast.expr)) and spans(item, spot.line):
            if isinstance(item, (ast.For, ast.AsyncFor)):
                yield item.lineno, item.target, item.iter
            for head in getattr(item, "generators", []):
                yield spot.line, head.target, head.iter


def _split(at: FailingLine, made: Made) -> _Split | None:
    call = made.node
    names = _SPLITS.get(called_name(call) or "") if isinstance(call, ast.Call) else None
    if names is None or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    owner = call.func.value
    of_library = source(owner) in _LIBRARIES
    what = argument_at(call, 0, "ary", "input") if of_library else owner
    parts = argument_at(call, 1 if of_library else 0, *names)
    if (
        what is None
        or parts is None
        or isinstance(at.slice.made(parts, made.spot, calls=True).node, (ast.List, ast.Tuple))
    ):
        return None  # places to divide at
    recorded = at.value_at(parts, made.spot)
    if recorded is not None and not recorded.isdecimal():
        return None
    return _Split(call, made.spot, what, parts)


def _count(at: FailingLine, what: ast.expr, spot: Spot) -> int | None:
    value = at.value_at(what, spot)
    held, shape = _HELD.match(value or ""), shape_of(value)
    if held is not None:
        return int(held[1])
    return shape.sizes[0] if shape is not None and shape.sizes else None


def _number(at: FailingLine, node: ast.expr, spot: Spot) -> int | None:
    value = at.value_at(node, spot)
    return int(value) if value is not None and value.isdecimal() else at.evaluated(node, spot)
