"""A record of a file whose length is read from the file, and that does not fill the shape that the program gives it.

A recording that lost a frame, a row that was cut: its own length is right, and the shape of the program is not.
"""

from __future__ import annotations

import ast
import math
import re

import msgspec

from pytracer._patterns import Pattern
from pytracer._text import shortened
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name, without_wrappers
from pytracer.analyze.evidence.syntax.names import elements, names_of
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_SHAPED = Pattern(r"^cannot reshape array of size (\d+) into shape \(([\d, ]+)\)")  # numpy
_VIEWED = Pattern(r"^shape '\[([\d, ]+)\]' is invalid for input of size (\d+)")  # torch
_WRAPS = frozenset({"from_numpy", "array", "asarray", "as_tensor", "tensor", "ascontiguousarray"})
_READS = frozenset({"unpack", "unpack_from", "frombuffer", "fromfile", "from_bytes", "read"})
_LONGEST = 60


class _Record(msgspec.Struct, frozen=True):
    """`name`: what the line reshapes. `rows`: how many it has of `row`, where `asked` has the wanted number."""

    name: str
    rows: int
    row: str
    wanted: int
    asked: str  # with its name in the program
    length: str
    size: str


def short_record(at: FailingLine) -> str | None:
    """What the record has, and what to do with it."""
    found = _record(at)
    if found is None:
        return None
    have = f"{found.rows} row{'s' * (found.rows != 1)} of {found.row}"
    short = found.rows < found.wanted
    return (
        f"`{found.name}` is a record of {have}, as long as the file says ({found.length}), and {at.here(at.line)} asks "
        f"for {found.asked}: leave out a record whose size is not `{found.size}`, or {'pad' if short else 'cut'} it. "
        f"If all have {found.rows}, change that number."
    )


def short_record_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _record(at)
    if found is None:
        return None
    return f"`{found.name}` is a record of the file with {found.rows} rows of {found.row}, and not {found.asked}"


def _record(at: FailingLine) -> _Record | None:
    shape, call, spot = _shape(at.message), _shaping(at), at.slice.spot(0)
    if shape is None or call is None or spot is None or not isinstance(call.func, ast.Attribute):
        return None
    count, sizes = shape
    per_row = math.prod(sizes[1:])
    length = _length_of(at, call.func.value, spot)
    if length is None or len(sizes) < 2 or not per_row or count % per_row or count == per_row * sizes[0]:
        return None
    given = [part for item in call.args for part in elements(item)]
    if len(given) != len(sizes):
        return None
    first = ast.unparse(given[0])
    asked = f"{sizes[0]}" if first == f"{sizes[0]}" else f"{sizes[0]} (`{first}`)"
    name, product = ast.unparse(call.func.value), " * ".join(ast.unparse(item) for item in given)
    row = f"({', '.join(map(str, sizes[1:]))})"
    return _Record(
        shortened(name, _LONGEST), count // per_row, row, sizes[0], asked, length, shortened(product, _LONGEST)
    )


def _shape(message: str) -> tuple[int, list[int]] | None:
    """How many elements there were, and the sizes that they do not fill."""
    found = _SHAPED.search(message)
    if found is not None:
        return int(found[1]), [int(item) for item in re.findall(r"\d+", found[2])]
    viewed = _VIEWED.search(message)
    return (int(viewed[2]), [int(item) for item in re.findall(r"\d+", viewed[1])]) if viewed is not None else None


def _shaping(at: FailingLine) -> ast.Call | None:
    node = at.node
    calls = [item for item in nodes_of(node) if isinstance(item, ast.Call)] if node is not None else []
    found = [item for item in calls if called_name(item) in ("reshape", "view") and item.args]
    return found[0] if len(found) == 1 else None


def _length_of(at: FailingLine, node: ast.expr, spot: Spot) -> str | None:
    """`` `length`, line 43 `` of `np.frombuffer(f.read(int(length)), ...)`; None of a fixed length, or a whole file."""
    made = at.slice.made(without_wrappers(node, _WRAPS), spot, calls=True)
    length = _asked_length(made.node)
    if length is None or any(isinstance(item, ast.BinOp) for item in nodes_of(length)):
        return None
    bound = [(name, *item) for name in names_of(length) for item in lines_that_bind(made.spot.scope, name)]
    if len(bound) != 1:
        return None
    name, line, value = bound[0]
    calls = [item for item in nodes_of(value) if isinstance(item, ast.Call)] if value is not None else []
    read = any(called_name(item) in _READS for item in calls)
    return f"`{name}`, {at.place(made.spot, line)}" if read else None


def _asked_length(node: ast.AST) -> ast.expr | None:
    """`n` of `frombuffer(f.read(n))` and of `fromfile(f, count=n)`."""
    if not isinstance(node, ast.Call):
        return None
    if called_name(node) == "fromfile":
        return argument_at(node, 2, "count")
    read = node.args[0] if called_name(node) == "frombuffer" and node.args else None
    reads = isinstance(read, ast.Call) and called_name(read) == "read" and len(read.args) == 1
    return read.args[0] if reads and isinstance(read, ast.Call) else None
