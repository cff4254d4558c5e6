"""A count in bytes, passed to a C function of the program's own that counts elements by it.

`lib.absmax(w.data_ptr(), w.nbytes)`, and in C `for (i = 0; i < n; i++) ... w[i]` of `float *w`: the loop leaves the
memory by as many times as an element has bytes. Told where the number is the tensor's size in bytes exactly,
and the source computes it as such: another tensor may well have four times as many elements.
"""

from __future__ import annotations

import ast
import math
import re

import msgspec

from pytracer._library_files import is_library_file
from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import python_frames
from pytracer.analyze.evidence.lifetime.where_made import place_of
from pytracer.analyze.evidence.native.native_stack import own_frames
from pytracer.analyze.evidence.own_code.arrays import held_array
from pytracer.analyze.evidence.own_code.c_text import declared_name, function_around, statement_at
from pytracer.analyze.evidence.own_code.c_text import without_comments as plain
from pytracer.analyze.evidence.own_code.native_bounds import LOOP, running_frame
from pytracer.analyze.evidence.own_code.native_source import own_source
from pytracer.analyze.evidence.own_code.own_libraries import passed_in
from pytracer.analyze.evidence.own_code.own_signature import parameter
from pytracer.analyze.evidence.own_code.passed_arrays import PassedArrays
from pytracer.analyze.evidence.preconditions.call import given_of
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.naming import LineWords, line_in
from pytracer.analyze.view import ProcessView

_ELEMENT = Pattern(r"(?<![\w.>])(?P<name>[A-Za-z_]\w*)\s*\[\s*(?P<index>\w+)\s*\]")
_BYTES = frozenset({"nbytes", "itemsize", "element_size"})
_QUOTED = 60


class CountedBytes(msgspec.Struct, frozen=True):
    """`text` = `value` is the size of `tensor` in bytes; `place` counts elements of `nbytes` bytes, `element`, by it.

    `made`: the line that set the number, with its text; None where it is written in the call. `line`: of the call.
    """

    text: str
    value: int
    tensor: str
    element: str
    nbytes: int
    place: LineWords
    line: LineWords
    made: LineWords | None

    @property
    def summary(self) -> str:
        """Behind the headline."""
        return (
            f"`{self.text}` = {self.value} is the size of `{self.tensor}` in bytes, and {self.place} counts elements "
            f"of {self.element} by it, of which there are {self.value // self.nbytes}"
        )

    @property
    def advice(self) -> str:
        """The change to make."""
        made = f" {self.made}" if self.made is not None else " that"
        return (
            f"Pass `{self.tensor}`'s number of elements at {self.line}, {self.value // self.nbytes} (numel() of a "
            f"tensor, size of an array), instead of `{self.text}`:{made} counts bytes, and an element of "
            f"{self.element} has {self.nbytes}."
        )


def counted_bytes(view: ProcessView) -> CountedBytes | None:
    """None where the line goes by another number, or the number is not that of the bytes exactly."""
    frame = running_frame(view)
    source = own_source(frame) if frame is not None and frame is own_frames(view)[0] else None
    if source is None or source[0].line is None:
        return None
    file, number, text = source[0].file or "", source[0].line, plain("\n".join(source[1]))
    lines = text.split("\n")
    around = function_around(text, statement_at(lines, number))
    if around is None:
        return None
    body = text[around.body : sum(len(item) + 1 for item in lines[:number])]
    names = tuple(map(declared_name, around.parameters))
    arrays = PassedArrays(view)
    for match in _ELEMENT.finditer(lines[number - 1]):
        bound = _bound(body, match["index"])
        if match["name"] not in names or bound not in names or _is_set(body, bound) or _is_set(body, match["name"]):
            continue
        taken = parameter(around.parameters[names.index(match["name"])], "", "")
        given = arrays.argument(around.name, names, names.index(match["name"]))
        count = arrays.argument(around.name, names, names.index(bound))
        if taken.element is None or taken.nbytes == 1 or given is None or count is None:
            continue
        if any(isinstance(item, ast.Subscript) for item in nodes_of(given[0])):
            continue  # another beginning
        held = [*dict.fromkeys(passed_in([given[0]]))]
        elements = _elements(view, held[0], taken.nbytes) if len(held) == 1 else None
        node, spot = count
        nbytes = (elements or 0) * taken.nbytes
        if not nbytes or _value(arrays, node, spot, held[0], nbytes) != nbytes:
            continue
        made = arrays.back.made(node, spot, calls=False)
        if not _is_of_bytes(made.node):
            continue  # such as the number of elements of another tensor, which has as many
        return CountedBytes(
            shortened(ast.unparse(node), _QUOTED),
            nbytes,
            held[0],
            taken.element,
            taken.nbytes,
            line_in(file, number, None),
            place_of(view, spot.file, spot.line),
            _made(view, made.spot.file, made.line, made.node) if made.node is not node else None,
        )
    return None


def _is_of_bytes(node: ast.AST) -> bool:
    """Whether the source computes it as bytes."""
    return any(isinstance(item, ast.Attribute) and item.attr in _BYTES for item in nodes_of(node))


def _made(view: ProcessView, file: str | None, line: int, node: ast.AST) -> LineWords:
    return place_of(view, file, line).quoted(shortened(ast.unparse(node), _QUOTED))


def _bound(body: str, index: str) -> str:
    """The variable below which a loop counts its index, by one; "" of another loop."""
    found = [match for match in LOOP.finditer(body) if match["name"] == index]
    plain_loop = found and found[-1]["how"] == "<" and found[-1]["start"].strip() == "0"
    return found[-1]["bound"].strip() if plain_loop else ""


def _is_set(body: str, name: str) -> bool:
    own = re.escape(name)
    sets = rf"(?<![\w.>]){own}\s*(?:(?:[-+*/%|&^]|<<|>>)?=(?!=)|\+\+|--)|(?:\+\+|--|(?<!&)&)\s*{own}\b(?!\s*\[)"
    return re.search(sets, body) is not None


def _elements(view: ProcessView, name: str, nbytes: int) -> int | None:
    """Of a variable of the line, whose elements have so many bytes."""
    array = held_array(view, name)
    if array is not None:
        return math.prod(array.shape) if array.element_bytes == nbytes else None
    frame = next((item for item in python_frames(view) if not is_library_file(item.file)), None)
    given = given_of(view, frame, ast.parse(name, mode="eval").body) if frame is not None else None
    if given is None or not given.elements or not given.base:
        return None
    if given.tensor is not None:
        return given.elements if given.tensor.element_bytes == nbytes else None
    storage = view.space.live_around(given.base)
    whole = storage is not None and storage.base == given.base and storage.nbytes == given.elements * nbytes
    return given.elements if whole else None


def _value(arrays: PassedArrays, node: ast.expr, spot: Spot, name: str, nbytes: int) -> int | None:
    """Of the count that is passed: as recorded, or as it is written for the same variable, which has `nbytes`."""
    factors = (f"{name}.numel()", f"{name}.element_size()")
    if ast.unparse(node) in (f"{name}.nbytes", " * ".join(factors), " * ".join(reversed(factors))):
        return nbytes
    return arrays.number(node, spot)
