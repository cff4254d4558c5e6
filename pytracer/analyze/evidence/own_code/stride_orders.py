"""Another order of a view's strides in which it fits: its leading part behind the rest, as where two were swapped.

Windows step by what their array has for each of their steps, and inside by the array's own strides. A view that has
these two parts the wrong way round reaches far too far; in the right order just to the end.
"""

from __future__ import annotations

import ast

import msgspec

from pytracer._text import shortened, size_words
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.own_code.recorded_arrays import RecordedArrays
from pytracer.analyze.evidence.own_code.view_makers import given_strides, span
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.naming import LineWords
from pytracer.analyze.view import ProcessView

_QUOTED = 70


class StrideOrder(msgspec.Struct, frozen=True):
    """`strides` would reach `nbytes`, which are there. `at`: where the source makes those that it has, as `text`.

    `parts`: the sum of two that it has them from, which would have to be swapped.
    """

    strides: tuple[int, ...]
    nbytes: int
    at: LineWords
    text: str
    parts: tuple[str, str] | None

    @property
    def advice(self) -> str:
        """What to change."""
        put = f", as with `{self.parts[1]}` before `{self.parts[0]}`" if self.parts is not None else ""
        return (
            f"Correct the strides at {self.at} (`{self.text}`): with the strides in the order {self.strides}{put}, it "
            f"would reach {size_words(self.nbytes)}, which fit."
        )


def other_order(
    view: ProcessView, arrays: RecordedArrays, made: Made, own: tuple[tuple[int, ...], ...], item: int, there: int
) -> StrideOrder | None:
    """None where no such order fits, or which is meant is not clear.

    Args:
        view: The process.
        arrays: Those on record.
        made: The call of as_strided().
        own: Shape and strides of the view, in bytes.
        item: Bytes of an element.
        there: Bytes of memory from its first one on, at most.
    """
    given, (shape, strides) = given_strides(made.node), own
    swapped = _swapped(shape, strides, item, there)
    if given is None or swapped == 0:
        return None
    order = strides[swapped:] + strides[:swapped]
    source = arrays.back.made(given, made.spot, calls=False)
    return StrideOrder(
        order,
        span(shape, order)[1] + item,
        place_of(view, source.spot.file, source.line),
        shortened(ast.unparse(source.node), _QUOTED),
        _parts(arrays, source, (swapped, len(strides) - swapped)),
    )


def _swapped(shape: tuple[int, ...], strides: tuple[int, ...], item: int, there: int) -> int:
    """How many of the first strides belong behind the others; 0 where that is not clear.

    The first part has the smaller strides, and swapped they reach just about as far as there is memory: an order by
    which much less would be read is but any that fits.
    """
    found = []
    for at in range(1, len(strides)):
        first, rest = strides[:at], strides[at:]
        reach = span(shape, rest + first)[1] + item
        if min(strides) >= 0 and max(first) < max(rest) and min(first) < min(rest) and there // 2 < reach <= there:
            found.append(at)
    half = len(strides) // 2
    return half if half in found else found[0] if len(found) == 1 else 0


def _parts(arrays: RecordedArrays, source: Made, lengths: tuple[int, int]) -> tuple[str, str] | None:
    """Of a sum of two that have these lengths, or, where the source does not show how many each has, are halves."""
    node = source.node
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add):
        return None
    known = [_length(arrays, item, source.spot) for item in (node.left, node.right)]
    if any(have not in (None, size) for have, size in zip(known, lengths, strict=True)):
        return None
    shown = lengths[0] == lengths[1] or known != [None, None]
    return (ast.unparse(node.left), ast.unparse(node.right)) if shown else None


def _length(arrays: RecordedArrays, node: ast.AST, spot: Spot) -> int | None:
    """Of a tuple that the source has in full, or of the sizes or strides of a recorded array."""
    made = arrays.back.made(node, spot, calls=True)
    if isinstance(made.node, (ast.Tuple, ast.List)) and not any(isinstance(i, ast.Starred) for i in made.node.elts):
        return len(made.node.elts)
    sizes = arrays.sizes(made.node, made.spot)
    return len(sizes) if sizes is not None else None
