"""The arrays whose numbers the failing line of the program's own C uses as indices, where it is given fitting sizes.

`map[yy * w + xx]` with `yy` of `rois[4 * r]`: where `h` and `w` are the sizes of `map`, the number is one of `rois`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import combinations

import msgspec

from pytracer._text import list_words, shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.own_code.c_text import split
from pytracer.analyze.evidence.own_code.element_uses import indices_of, is_index_of
from pytracer.analyze.evidence.own_code.native_bounds import NAME
from pytracer.analyze.evidence.own_code.own_libraries import passed_in
from pytracer.analyze.evidence.own_code.own_place import own_place
from pytracer.analyze.evidence.own_code.own_signature import own_definition, parameter
from pytracer.analyze.evidence.own_code.pointer_arguments import pointer_arguments
from pytracer.analyze.evidence.syntax.calls import calls_on
from pytracer.analyze.tensors.source_lines import syntax_tree
from pytracer.analyze.view import ProcessView

_MOST, _QUOTED, _LEAST = 3, 70, 2


class LeadingArrays(msgspec.Struct, frozen=True):
    """`names` of the variables that line `line` passes; `text` at `place` is the line that indexes by their numbers.

    `sizes`: numbers that the line passes as well, and that multiplied are the size of the memory.
    """

    names: tuple[str, ...]
    line: int
    place: str
    text: str
    sizes: tuple[int, ...]

    @property
    def advice(self) -> str:
        """Where to look."""
        sizes = " * ".join(map(str, self.sizes))
        names = list_words([f"`{item}`" for item in self.names], _MOST)
        return (
            f"Check the values of {names} (min(), max()), which line {self.line} passes: `{self.text}` ({self.place}) "
            f"uses numbers made of them as indices, unchecked. The sizes fit: that memory has {sizes} elements."
        )


def leading_arrays(view: ProcessView, values: Sequence[int]) -> LeadingArrays | None:
    """None where the numbers that are passed may be wrong as well: they are the sizes of no tensor, all together."""
    sizes = _fit(view, values)
    if sizes is None:
        return None
    place, frame = own_place(view), next(iter(program_frames(view)), None)
    tree = syntax_tree(view.process.snapshot, frame)
    if place is None or tree is None or frame is None or frame.line is None:
        return None
    made = own_definition(view, place.function)
    if made is None:
        return None
    taken = [parameter(item, made.place, made.body) for item in split(made.parameters)]
    calls = [item for item in calls_on(tree, frame.line) if len(item.args) == len(taken)]  # also by `self.fn(...)`
    if len(calls) != 1:
        return None
    names = [
        held[0]
        for item, argument in zip(taken, pointer_arguments(tree, calls[0]), strict=False)
        if len(held := list(passed_in([argument]))) == 1
        if item.element is not None and is_index_of(place.text, made.body, item.name)
    ]
    if not names or _is_checked(place.text, made.body):
        return None
    return LeadingArrays(
        tuple(dict.fromkeys(names)), frame.line, place.place, shortened(place.text.rstrip(";"), _QUOTED), sizes
    )


def _is_checked(line: str, body: str) -> bool:
    """Whether the function compares what the line indexes by, or cuts it to a range."""
    names = {name for item in indices_of(line) for name in NAME.findall(item)}
    within = "|".join(sorted(map(re.escape, names)))
    asks = (rf"\bif\s*\([^;{{}}]*(?:\b(?:{within})\b\s*[<>]|[<>]=?\s*(?:{within})\b)",
            rf"\b(?:{within})\s*=[^;]*(?:\?|\b\w*(?:min|max|clamp|clip|CLAMP|MIN|MAX)\w*\s*\()")  # fmt: skip
    return bool(names) and any(re.search(item, body) is not None for item in asks)


def _fit(view: ProcessView, values: Sequence[int]) -> tuple[int, ...] | None:
    """Those that multiplied are the number of elements of the memory that was left, and in the order of its sizes.

    A height and a width that are exchanged fit as well, and lead out of it.
    """
    storage, crash = view.place.storage if view.place is not None else None, view.crash
    if storage is None or crash is None:
        return None
    elements = {item.elements for item in crash.holders if item.base == storage.base and item.elements}
    shapes = {item.sizes for item in crash.arguments if item.base == storage.base and item.elements in elements}
    return next((part for part in _parts(values) if _is_of(part, elements, shapes)), None)


def _is_of(part: tuple[int, ...], elements: set[int], shapes: set[tuple[int, ...]]) -> bool:
    if min(part) <= 1 or math.prod(part) not in elements:
        return False
    last = {sizes[-_LEAST:] for sizes in shapes}
    return len(set(part)) == 1 or (bool(last) and all(_in_order(part, item) for item in last))


def _in_order(part: tuple[int, ...], last: tuple[int, ...]) -> bool:
    at = 0
    for size in last:
        if size not in part[at:]:
            return False
        at = part.index(size, at) + 1
    return True


def _parts(values: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for count in range(_LEAST, len(values) + 1):
        yield from combinations(values, count)
