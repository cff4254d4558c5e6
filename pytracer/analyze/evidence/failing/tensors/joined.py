"""Tensors that cannot be joined: the dimension in which they differ, and the input whose odd size was halved."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import Shape, shape_of
from pytracer.analyze.evidence.failing.tensors.operand_shapes import made_words
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.lines import names_of_line
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_CAT = Pattern(
    r"Sizes of tensors must match except in dimension (\d+)\. "
    r"Expected size (\d+) but got size (\d+) for tensor number (\d+)"
)
_NEAR = 3  # what rounding at a pooling layer leaves
_PLANE = 2


def joined_sizes(at: FailingLine) -> str | None:
    """Of torch.cat()."""
    found = _CAT.search(at.message)
    if found is None:
        return None
    along, first, second, number = (int(item) for item in found.groups())
    lists = (
        [item for item in nodes_of(at.node) if isinstance(item, (ast.List, ast.Tuple))] if at.node is not None else []
    )
    if len(lists) != 1 or number >= len(lists[0].elts):
        return None
    left, right = lists[0].elts[0], lists[0].elts[number]
    one, other = at.shape(left), at.shape(right)
    halved = _halved(at, (left, one), (right, other), (first, second))
    if halved is not None:
        return halved
    if one is None or other is None:
        return None
    differ = [
        n for n, pair in enumerate(zip(one.sizes, other.sizes, strict=False)) if pair[0] != pair[1] and n != along
    ]
    names = f"`{source(left)}` {one.words} and `{source(right)}` {other.words}"
    place = f"dimension {differ[0]}" if len(differ) == 1 else f"dimensions {', '.join(map(str, differ))}"
    if 0 < abs(first - second) <= _NEAR and len(one.sizes) > _PLANE and 0 not in differ:  # 0 is the batch's
        return (
            f"{names} differ in {place} ({first} and {second}), as where an odd size was halved and doubled again. "
            "Pad or crop one to the other (F.interpolate(x, size=...), F.pad), or use input sizes that divide evenly."
        )
    return f"{names} differ in {place}, and only dimension {along} may{made_words(at, left)}{made_words(at, right)}."


def _halved(
    at: FailingLine,
    first: tuple[ast.AST, Shape | None],
    second: tuple[ast.AST, Shape | None],
    sizes: tuple[int, int],
) -> str | None:
    """An encoder's odd size, and the input that it was halved from: `[1, 64, 58]` for 29."""
    known = next((item for item in (first, second) if item[1] is not None), None)
    shape = known[1] if known is not None else None
    if shape is None or len(shape.sizes) < 3 or not 0 < abs(sizes[0] - sizes[1]) <= _NEAR:
        return None
    size = sizes[0] if known is first else sizes[1]
    places = [place for place in range(-len(shape.sizes) + 2, 0) if shape.sizes[place] == size]
    origin = next((found for place in places for depth in range(1, len(at.frames))
                   if (found := _input_of(at, depth, place, size)) is not None), None)  # fmt: skip
    if origin is None or not size % 2:
        return None
    name, given, large, where = origin
    pair = f"`{source(first[0])}` has {sizes[0]} and `{source(second[0])}` {sizes[1]}"
    return (
        f"{pair}: `{name}` {given.words}{where} is {large} there, which halving makes {size}, an odd size; halved and "
        f"doubled again that loses one. Pad `{name}` to a multiple of 2 for each halving (8 for three) and crop the "
        "result, or resize one to the other (`F.interpolate(x, size=...)`)."
    )


def _input_of(at: FailingLine, depth: int, place: int, size: int) -> tuple[str, Shape, int, str] | None:
    """The one tensor of a caller's frame that halves to a size, and where it was made."""
    found = []
    for name, value in at.outer.get(depth, {}).items():
        shape = shape_of(value)
        if shape is None or len(shape.sizes) < _PLANE or -place > len(shape.sizes) - 1 or "[" in name:
            continue
        halves, count = shape.sizes[place], 0
        while halves > size:
            halves, count = (halves + 1) // 2 if (halves + 1) // 2 == size else halves // 2, count + 1
        if halves == size and count:
            found.append((name, shape, shape.sizes[place]))
    spot = at.slice.spot(depth)
    passed = {name for name, _, _ in found} & _passed_names(at, depth)
    kept = [item for item in found if item[0] in passed] or (found if len(found) == 1 else [])
    if len(kept) != 1 or spot is None:
        return None
    bound = [line for line, _ in lines_that_bind(spot.scope, kept[0][0]) if line <= spot.line]
    return (*kept[0], f" ({at.place(spot, max(bound))})" if bound else "")


def _passed_names(at: FailingLine, depth: int) -> set[str]:
    """What the line of a caller's frame reads."""
    spot = at.slice.spot(depth)
    return {*names_of_line(spot.tree, spot.line)} if spot is not None else set()
