"""np.frombuffer() and torch.frombuffer() beyond the end of a buffer: an offset in bytes, a count of elements."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from pytracer._patterns import Pattern
from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.numbers import number_at
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.names import last_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_BEHIND = Pattern(
    r"^offset (?:\((?P<at>\d+) bytes\) )?must be non-negative and no greater than buffer length \((?P<n>\d+)"
)
_SMALLER = Pattern(r"^buffer is smaller than requested size|^requested buffer length .* must not be greater")
_LENGTHS = ("len", "getsize", "stat")
_SIZES = ("st_size", "nbytes", "size")
_WIDTHS = {"uint8": 1, "int8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "uint32": 4} | {
    "float32": 4, "int64": 8, "uint64": 8, "float64": 8
}  # fmt: skip
_FIXED = (2, 4, 8)


def short_buffer(at: FailingLine) -> str | None:
    """Where it lies, the end, what made it, and a line that takes the elements for others than they are."""
    call = at.only(ast.Call)
    if at.kind != "ValueError" or call is None or called_name(call) != "frombuffer" or not call.args:
        return None
    behind, buffer = _BEHIND.search(at.message), source(call.args[0])
    offset = argument_at(call, 3, "offset")
    if behind is not None and offset is not None:
        words = _of_offset(at, offset, behind, buffer)
    elif _SMALLER.search(at.message):
        words = _of_count(at, call, offset, buffer)
    else:
        return None
    return f"{words}. {_fixed_width(at, call) or 'An offset counts bytes, a count elements: see what makes both.'}"


def _of_offset(at: FailingLine, offset: ast.expr, behind: re.Match[str], buffer: str) -> str:
    number = behind["at"] or number_at(at, offset)
    is_at = f"is {number}" if number is not None else "lies"
    return f"`offset={source(offset)}`{at.came(offset)} {is_at}, beyond the {behind['n']} bytes of `{buffer}`"


def _of_count(at: FailingLine, call: ast.Call, offset: ast.expr | None, buffer: str) -> str:
    count = argument_at(call, 2, "count")
    asked = [(name, node) for name, node in (("count", count), ("offset", offset)) if node is not None]
    told = []
    for name, node in asked:
        number = number_at(at, node)
        told.append(f"`{name}={source(node)}`{f' ({number})' if number is not None else ''}{at.came(node)}")
    verb = "reach" if len(told) > 1 else "reaches"
    return f"{' and '.join(told) or 'What is asked for'} {verb} beyond the end of `{buffer}`"


def _fixed_width(at: FailingLine, call: ast.Call) -> str | None:
    """The only line that divides a number of bytes by 2, 4 or 8, where that is not the size of the dtype."""
    found = [(file, item, width) for file, tree in at.trees.items() for item, width in _divisions(tree)]
    dtype = argument_at(call, 1, "dtype")
    known = _WIDTHS.get(last_name(dtype) or "") if dtype is not None else None
    if len(found) != 1 or found[0][2] == known:
        return None
    file, item, width = found[0]
    place = capital(at.in_file(file, item.lineno))
    size = f"and `{source(dtype)}` has {known}" if known is not None and dtype is not None else "whatever the dtype is"
    return (
        f"{place} (`{source(item)}`) counts elements of {width} bytes, {size}: divide by the "
        "dtype's itemsize there, or what is drawn or counted by it goes beyond the end."
    )


def _divisions(tree: ast.Module) -> Iterator[tuple[ast.BinOp, int]]:
    """`len(data) // 2`, `os.path.getsize(path) / 4`, `path.stat().st_size // 2`."""
    for item in nodes_of(tree):
        if not isinstance(item, ast.BinOp) or not isinstance(item.op, (ast.FloorDiv, ast.Div)):
            continue
        width = item.right.value if isinstance(item.right, ast.Constant) else None
        of_bytes = isinstance(item.left, ast.Call) and called_name(item.left) in _LENGTHS
        of_bytes = of_bytes or (isinstance(item.left, ast.Attribute) and item.left.attr in _SIZES)
        if of_bytes and type(width) is int and width in _FIXED:
            yield item, width
