"""Flattened images: of 2592 features and `nn.Linear(32 * 8 * 8, n)` the planes, 9x9 and 8x8, and the images behind."""

from __future__ import annotations

import ast
import math

import msgspec

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import shape_of
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import class_around

_IMAGE = 4  # batch, channels, height, width
_LEAST = 2
_FACTORS = 3  # of `32 * 8 * 8`


class Planes(msgspec.Struct, frozen=True):
    """How many planes, and the side of each: that of the data, and that which the layer was made for."""

    count: int
    has: int
    takes: int


def planes(at: FailingLine, size: ast.expr, spot: Spot, has: int, takes: int) -> Planes | None:
    """Of the expression of the size that a layer was made for; None where it is not certain which planes are meant."""
    for count in _counts(at, size, spot, has):
        if not count or count < _LEAST or has % count or takes % count:
            continue
        one, other = math.isqrt(has // count), math.isqrt(takes // count)
        if one * one * count == has and other * other * count == takes and one != other:
            return Planes(count, one, other)
    return None


def _factors(node: ast.AST) -> list[ast.expr]:
    """`32`, `8` and `8` of `32 * 8 * 8`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*_factors(node.left), node.right]
    return [node] if isinstance(node, ast.expr) else []


def _counts(at: FailingLine, size: ast.expr, spot: Spot, has: int) -> list[int | None]:
    """How many planes it may be: of a recorded tensor of that many numbers, of `32 * 8 * 8`, or of convolutions."""
    flattened = {shape[1] for _, shape in _images_at(at, 0) if math.prod(shape[1:]) == has}
    if flattened:
        return [*flattened] if len(flattened) == 1 else []
    factors, ends = _factors(size), _ends(at, spot)
    if len(factors) == 1:
        return [*ends] if len(ends) == 1 else []
    values = [at.evaluated(item, spot) for item in factors]
    square = len(values) == _FACTORS and values[1] == values[2]
    return values if square else [item for item in values if item in ends]


def _ends(at: FailingLine, spot: Spot) -> set[int | None]:
    """The channels of the convolutions of the class whose output no other one of it takes."""
    owner = class_around(spot.tree, spot.scope)
    calls = [item for item in nodes_of(owner) if isinstance(item, ast.Call)] if owner is not None else []
    found = [item for item in calls if called_name(item) == "Conv2d" and len(item.args) > 1]
    taken = {at.evaluated(item.args[0], spot) for item in found}
    made = {at.evaluated(item.args[1], spot) for item in found}
    return made if len(made) == 1 else made - (taken - {None})


def _images_at(at: FailingLine, depth: int) -> list[tuple[str, tuple[int, ...]]]:
    held = [(name, shape_of(value)) for name, value in at.values_at(depth).items() if name.isidentifier()]
    return [
        (name, shape.sizes)
        for name, shape in held
        if shape is not None and len(shape.sizes) == _IMAGE and min(shape.sizes[2:]) > 1
    ]


def images(at: FailingLine) -> tuple[str, tuple[int, ...]] | None:
    """The one tensor of images where the data came in: of the outermost frame that has any."""
    for depth in reversed(range(len(at.frames))):
        found = _images_at(at, depth)
        if found:
            return found[0] if len({sizes for _, sizes in found}) == 1 else None
    return None


def of_images(at: FailingLine, found: Planes) -> str:
    """`` , as `images` [8, 3, 72, 72] are 72x72 ``, and which size would fit, where both sides are known."""
    known = images(at)
    if known is None or known[1][2] != known[1][3] or known[1][1:3] == (found.count, found.has):
        return ""
    name, sizes = known
    side = sizes[2]
    fits = side // found.has * found.takes if side % found.has == 0 else None
    fit = f" ({fits}x{fits} may fit)" if fits is not None else ""
    words = ", ".join(map(str, sizes))
    return f", as `{name}` [{words}] is {side}x{side}{fit}"


def layer_size(layer: Made) -> ast.expr | None:
    """`32 * 8 * 8` of `nn.Linear(32 * 8 * 8, hidden)`."""
    call = layer.node
    if not isinstance(call, ast.Call) or called_name(call) not in ("Linear", "LazyLinear"):
        return None
    named = [item.value for item in call.keywords if item.arg == "in_features"]
    return named[0] if named else call.args[0] if call.args else None


def folded(at: FailingLine, output: str, ratio: int) -> str | None:
    """`x.view(-1, 16 * 5 * 5)` of the model that gave an output of `ratio` rows for each sample."""
    made = at.made(output, calls=False)
    call = made.node if made is not None else None
    found = at.slice.function(call, made.spot) if made is not None and isinstance(call, ast.Call) else None
    if found is None:
        return None
    function, spot = found
    views = [item for item in nodes_of(function) if isinstance(item, ast.Call) and _is_folding(item)]
    if len(views) != 1:
        return None
    inside = Spot(spot.file, spot.tree, function, views[0].lineno)
    size = at.evaluated(views[0].args[1], inside)
    shape = at.shape(output)
    if size is None or shape is None or size == shape.sizes[-1]:
        return None  # rows of classes are meant: a class for each token
    real = size * ratio
    sides = planes(at, views[0].args[1], inside, real, size)
    of = f" ({sides.count} planes of {sides.has}x{sides.has})" if sides is not None else ""
    behind = of_images(at, sides) if sides is not None else ""
    owner = source(views[0].func.value) if isinstance(views[0].func, ast.Attribute) else "x"
    return (
        f"`{source(views[0])}` ({at.place(inside, views[0].lineno)}) makes {ratio} rows of each sample: it has "
        f"{real} numbers there{of}, and not {size}{behind}. Write `{owner}.flatten(1)`, and fit the layer behind it "
        "(in_features) or the size of the images."
    )


def _is_folding(call: ast.Call) -> bool:
    first = call.args[0] if call.args else None
    return called_name(call) in ("view", "reshape") and len(call.args) == 2 and ast.unparse(first or call) == "-1"
