"""A file of plain numbers that is read as another type than it was written in, or with what was written before them.

Such a file has no header that tells: 4096 numbers of 16 bits are 2048 of 32. By the line that writes it, where the
program has only one, and by the sizes that the message or the recorder has.
"""

from __future__ import annotations

import ast
import re

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.stored.opened import number_of, opened
from pytracer.analyze.evidence.slicing.element_types import BYTES, element_type
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.slicing.written_files import Written, reads_file, writers
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value, without_wrappers
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import parents_of, statement_at

_MAPPED = "mmap length is greater than file size"
_SHAPED = Pattern(r"^cannot reshape array of size (\d+) into shape \(([\d, -]+)\)")
_VIEWED = Pattern(r"^shape '\[([\d, -]+)\]' is invalid for input of size (\d+)")
_PLAIN = frozenset({"memmap", "fromfile", "from_file"})
_SHAPES = ("reshape", "view")
_WRAPS = frozenset({"from_numpy", "array", "asarray", "as_tensor", "tensor", "ascontiguousarray"})
_PARTS = 2


class _Misread(msgspec.Struct, frozen=True):
    """`subject`: what is wrong with the reading; `advice`: what to write instead."""

    subject: str
    advice: str


def misread_file(at: FailingLine) -> str | None:
    """What to change, at which of both lines."""
    found = _misread(at)
    return f"{_begun(found.subject)}. {found.advice}" if found is not None else None


def misread_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _misread(at)
    return found.subject if found is not None else None


def _begun(text: str) -> str:
    """As a sentence begins; the name of a file stays as it is."""
    return capital(text) if text.startswith("line ") else text


def _misread(at: FailingLine) -> _Misread | None:
    read = _read(at)
    if read is None:
        return None
    call, spot = read
    made = writers(at.files, at.slice, call, None, spot)
    wrote = [element_type(at.slice, item.value, item.spot) for item in made]
    own = element_type(at.slice, call, spot)
    if own is None:
        return None
    if len(made) == 1 and wrote[0] is not None and wrote[0] != own:
        return _of_types(at, call, spot, made[0], own, wrote[0])
    if len(made) == _PARTS and wrote[1] == own and _follow(made):
        return _of_header(at, call, spot, made, own)
    return _too_short(at, call, spot, made if wrote == [own] else [], own)


def _follow(made: list[Written]) -> bool:
    """Whether one is written right before the other, and not in another branch."""
    head, data = (statement_at(item.spot.tree, item.value.lineno) for item in made)
    parents = parents_of(made[0].spot.tree)
    together = head is not None and data is not None and parents.get(head) is parents.get(data)
    above = parents.get(head) if head is not None and together else None
    block = (
        next((part for _, part in ast.iter_fields(above) if isinstance(part, list) and head in part), [])
        if above is not None
        else []
    )
    return data in block and head is not data and block.index(head) < block.index(data)


def _read(at: FailingLine) -> tuple[ast.Call, Spot] | None:
    """The call that reads the file: the failing one, or what made the array that does not fit a shape."""
    call, spot = _failing_call(at), at.slice.spot(0)
    if call is None or spot is None:
        return None
    if _MAPPED in at.message:
        return (call, spot) if reads_file(call) else None
    if not isinstance(call.func, ast.Attribute):
        return None
    made = at.slice.made(without_wrappers(call.func.value, _WRAPS), spot, calls=True)
    for _ in range(_PARTS):
        if not isinstance(made.node, ast.Call) or called_name(made.node) not in _WRAPS:
            break
        made = at.slice.made(without_wrappers(made.node, _WRAPS), made.spot, calls=True)
    plain = isinstance(made.node, ast.Call) and called_name(made.node) in _PLAIN and reads_file(made.node)
    return (made.node, made.spot) if plain and isinstance(made.node, ast.Call) else None


def _failing_call(at: FailingLine) -> ast.Call | None:
    """The call that the message is of; by its name, where the line has others and the columns are not recorded."""
    names: tuple[str, ...] = ("memmap",) if _MAPPED in at.message else _SHAPES if _shape(at) is not None else ()
    node = at.node
    found = [item for item in nodes_of(node) if isinstance(item, ast.Call)] if node is not None and names else []
    named = [item for item in found if called_name(item) in names]
    return named[0] if len(named) == 1 and (named[0] is node or not isinstance(node, ast.expr)) else None


def _shape(at: FailingLine) -> tuple[int, list[int]] | None:
    """How many elements there were, and the sizes that they do not fill."""
    found = _SHAPED.search(at.message)
    if found is not None:
        return int(found[1]), [int(item) for item in re.findall(r"-?\d+", found[2])]
    viewed = _VIEWED.search(at.message)
    return (int(viewed[2]), [int(item) for item in re.findall(r"-?\d+", viewed[1])]) if viewed is not None else None


def _wanted(at: FailingLine) -> int | None:
    """How many elements the shape has; None with a size that is left open."""
    shape = _shape(at)
    if shape is None or any(size < 0 for size in shape[1]):
        return None
    count = 1
    for size in shape[1]:
        count *= size
    return count


def _of_types(at: FailingLine, call: ast.Call, spot: Spot, made: Written, own: str, wrote: str) -> _Misread | None:
    shape, wanted = _shape(at), _wanted(at)
    if shape is not None and wanted is not None and shape[0] * BYTES[own] != wanted * BYTES[wrote]:
        return None  # another number of elements was written, too
    size, asked = _sizes(at)
    if size is not None and asked is not None and size * BYTES[own] != asked * BYTES[wrote]:
        return None
    here, there = at.place(spot, call.lineno), at.place(made.spot, made.value.lineno)
    name = _name(call)
    return _Misread(
        f"{there} writes {name} as {wrote}, and {here} reads it as {own}",
        f"Read what was written: pass dtype={_module(call)}.{wrote} to `{source(call.func)}` at {here}; or write "
        f"{own} at {there}, and make the file anew.",
    )


def _of_header(at: FailingLine, call: ast.Call, spot: Spot, made: list[Written], own: str) -> _Misread | None:
    """Of a file that begins with something else, which the reading call does not leave out."""
    shape, wanted = _shape(at), _wanted(at)
    if shape is None or wanted is None or shape[0] <= wanted or keyword_value(call, "offset") is not None:
        return None
    more, head = (shape[0] - wanted) * BYTES[own], made[0]
    there, here = at.place(head.spot, head.value.lineno), at.place(spot, call.lineno)
    return _Misread(
        f"{_name(call)} has {more} bytes more than the shape: {there} writes `{source(head.value)}` before the data, "
        f"and {here} reads the file from its begin",
        f"Leave these out: pass offset={more} to `{source(call.func)}` at {here}, if that is what they are.",
    )


def _too_short(at: FailingLine, call: ast.Call, spot: Spot, made: list[Written], own: str) -> _Misread | None:
    """Of a mapped file that was made with fewer elements."""
    size, asked = _sizes(at)
    if size is None or asked is None or size >= asked or keyword_value(call, "offset") is not None:
        return None
    here, items = at.place(spot, call.lineno), BYTES[own]
    name, counts = _name(call), f"{size // items} elements of {own}, and {here} maps {asked // items}"
    writer = made[0] if len(made) == 1 else None
    shape = keyword_value(writer.value, "shape") if writer is not None and isinstance(writer.value, ast.Call) else None
    if writer is None:
        return _Misread(
            f"{name} has {counts}",
            "See which of both is right: the shape that is mapped, or the file, whose writer may have been ended half "
            "way or have written another type.",
        )
    there = at.place(writer.spot, writer.value.lineno)
    made_by = f" with shape={source(shape)}" if shape is not None else ""
    return _Misread(
        f"{name} has {counts}: {there} makes it{made_by}",
        f"Map as many as {there} writes: save that shape beside the file and read it, or make the file anew.",
    )


def _sizes(at: FailingLine) -> tuple[int | None, int | None]:
    """Bytes of the file, and of what was to be mapped."""
    file = opened(at.values)
    asked = number_of(at.values, "file asked size")
    return (file.size, asked) if file is not None and asked is not None else (None, None)


def _name(call: ast.Call) -> str:
    text = ast.unparse(call.args[0])
    names = re.findall(r"[\w.-]+\.\w+(?=['\"]\)?$)", text)
    return names[-1] if names else f"`{source(call.args[0])}`"


def _module(call: ast.Call) -> str:
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return ast.unparse(owner) if owner is not None else "np"
