"""The line of the program that writes a value that no index may have: a mark for padding, for missing or for ignored.

`index[distance > radius] = 1 << 30`, `masked_fill(mask, -1)`, `padding_value=PAD`: a constant that is the very value.
"""

from __future__ import annotations

import ast
import operator as operators
from collections.abc import Callable, Iterator

from pytracer._text import shortened
from pytracer.analyze.evidence.lifetime.variables import program_frames
from pytracer.analyze.evidence.lifetime.where_made import made_words, place_of
from pytracer.analyze.evidence.slicing.bindings import only_global
from pytracer.analyze.evidence.slicing.files import program_files
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import scope_of
from pytracer.analyze.tensors.source_lines import line_text
from pytracer.analyze.view import ProcessView
from pytracer.report.job import PythonFrame

_FILLS = frozenset({
    "masked_fill", "masked_fill_", "full", "full_like", "new_full", "fill_", "fill", "where", "index_fill", "clamp",
    "index_fill_", "pad_sequence", "pad", "nan_to_num", "fillna", "put", "constant_pad_1d", "get", "setdefault",
})  # fmt: skip
_SUMS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operators.add, ast.Sub: operators.sub, ast.Mult: operators.mul, ast.LShift: operators.lshift,
    ast.Pow: operators.pow, ast.FloorDiv: operators.floordiv,
}  # fmt: skip
_LEAST, _MOST_BITS, _QUOTED = 2, 64, 60


def origin_words(view: ProcessView, value: int | None, base: int, name: str | None) -> str:
    """A sentence: which line writes the value, else which line made the tensor's memory. `name`: as it begins."""
    written = written_value(view, value) if value is not None else None
    made = made_words(view, base, name) if name is not None and written is None else None
    return written or made or "Find out where it was computed."


def written_value(view: ProcessView, value: int) -> str | None:
    """A sentence about the only line of the program that writes it; None also of 0 and 1, which any line may mean."""
    frames = program_frames(view)
    if 0 <= value < _LEAST:
        return None
    back = Slice(view.process.snapshot, frames)
    found = {
        (file, line)
        for file, tree in program_files(view.process.snapshot, frames).items()
        for line, node in _written(tree)
        if value in (constant(node, tree), _followed(back, file, tree, line, node))
    }
    if len(found) != 1:
        return None
    file, line = found.pop()
    text = shortened(line_text(view.process.snapshot, PythonFrame(file=file, line=line)) or "", _QUOTED)
    return (
        f"{_capital(place_of(view, file, line))} (`{text}`) writes {value}: leave such elements out, or replace them, "
        "before they are used as indices."
    )


def _followed(back: Slice, file: str, tree: ast.Module, line: int, node: ast.AST) -> int | None:
    """The number of an attribute: `-100` of `self.label_pad`, by the constructor and its default."""
    if not isinstance(node, ast.Attribute):
        return None
    made = back.made(node, Spot(file, tree, scope_of(tree, line), line), calls=False)
    return constant(made.node, made.spot.tree) if made.node is not node else None


def _capital(text: str) -> str:
    return f"Line{text[4:]}" if text.startswith("line ") else text


def _written(tree: ast.Module) -> Iterator[tuple[int, ast.AST]]:
    """What is put into part of something, or is given to a function that fills."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Assign) and any(isinstance(item, ast.Subscript) for item in node.targets):
            yield node.lineno, node.value
        elif isinstance(node, ast.Call) and called_name(node) in _FILLS:
            for item in passed_values(node):
                yield node.lineno, item


def constant(node: ast.AST, tree: ast.Module) -> int | None:
    """The whole number that an expression of constants is; a name is one where only one line of the file binds it."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int) and not isinstance(node.value, bool) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = constant(node.operand, tree)
        return -inner if inner is not None else None
    if isinstance(node, ast.BinOp):
        left, right, of = constant(node.left, tree), constant(node.right, tree), _SUMS.get(type(node.op))
        if left is None or right is None or of is None or not _is_small(node.op, left, right):
            return None
        return of(left, right)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call) and called_name(node.value) == "iinfo":
        return _of_iinfo(node.value, node.attr)
    bound = only_global(tree, node.id) if isinstance(node, ast.Name) else None
    held = bound[1] if bound is not None and bound[2] is None else None
    return constant(held, tree) if held is not None and not isinstance(held, ast.Name) else None


def _is_small(of: ast.operator, left: int, right: int) -> bool:
    if isinstance(of, (ast.LShift, ast.Pow)):
        return 0 <= right <= _MOST_BITS and abs(left) <= 1 << _MOST_BITS
    return not isinstance(of, ast.FloorDiv) or right != 0


def _of_iinfo(call: ast.Call, which: str) -> int | None:
    """`torch.iinfo(torch.int32).max`."""
    name = ast.unparse(call.args[0]).rpartition(".")[2].removeprefix("int") if len(call.args) == 1 else ""
    bits = {"8": 8, "16": 16, "32": 32, "64": 64, "long": 64}.get(name)
    if bits is None or which not in ("max", "min"):
        return None
    return (1 << (bits - 1)) - 1 if which == "max" else -(1 << (bits - 1))
