"""Where the source shows as_strided(): the call behind what a line reads, and the array that it made.

Recorded are the arrays of variables; a view keeps its memory through `x.T`, `x[3:]` or torch.from_numpy().
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from pytracer.analyze.evidence.own_code.recorded_arrays import RecordedArrays
from pytracer.analyze.evidence.slicing.slice import Slice
from pytracer.analyze.evidence.slicing.spots import Made, Spot
from pytracer.analyze.evidence.syntax.calls import called_name, calls_on, keyword_value
from pytracer.analyze.evidence.syntax.lines import attributes_of_line, names_of_line
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.decode.types.snapshot import HeldArray

MAKER = "as_strided"
_MODULE = "stride_tricks"
_SAME_MEMORY = frozenset({"reshape", "view", "transpose", "squeeze", "swapaxes", "from_numpy", "as_tensor", "numpy"})
_SAME_ATTRIBUTES = ("T", "real", "data")
_HOPS = 8


def read_by_line(spot: Spot) -> Iterator[ast.AST]:
    """Variables, attributes and calls of the line."""
    for name in (*names_of_line(spot.tree, spot.line), *attributes_of_line(spot.tree, spot.line)):
        yield ast.parse(name, mode="eval").body
    yield from calls_on(spot.tree, spot.line)


def strided_call(back: Slice, node: ast.AST, spot: Spot) -> tuple[ast.AST, Spot, Made] | None:
    """What as_strided() returned, behind what keeps its memory: the expression, where that is, and the call."""
    for _ in range(_HOPS):
        made = back.made(node, spot, calls=True)
        if isinstance(made.node, ast.Call) and _is_maker(made.node, made.spot.tree):
            return node, spot, made
        inner = _of_same_memory(made.node)
        if inner is None:
            return None
        node, spot = inner, made.spot
    return None


def _of_same_memory(node: ast.AST) -> ast.AST | None:
    """`x` of `x.T`, `x[3:]` and `x.reshape(4, 5)`, `torch.from_numpy(x)`."""
    if isinstance(node, ast.Subscript):
        return node.value
    if isinstance(node, ast.Attribute):
        return node.value if node.attr in _SAME_ATTRIBUTES else None
    if not isinstance(node, ast.Call) or called_name(node) not in _SAME_MEMORY:
        return None
    if called_name(node) in ("from_numpy", "as_tensor"):
        return node.args[0] if node.args else None
    return node.func.value if isinstance(node.func, ast.Attribute) else None


def _is_maker(call: ast.Call, tree: ast.Module) -> bool:
    """NumPy's, not torch's, which checks."""
    if isinstance(call.func, ast.Attribute):
        owner = ast.unparse(call.func.value)
        return call.func.attr == MAKER and (owner.rpartition(".")[2] == _MODULE or owner in _imported(tree, _MODULE))
    return isinstance(call.func, ast.Name) and call.func.id in _imported(tree, MAKER)


def _imported(tree: ast.Module, name: str) -> set[str]:
    """What a file calls it."""
    return {
        item.asname or item.name
        for node in nodes_of(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for item in node.names
        if item.name.rpartition(".")[2] == name and not (getattr(node, "module", None) or "").startswith("torch")
    }


def given_strides(call: ast.AST) -> ast.expr | None:
    """The strides that a call of as_strided() is given."""
    if not isinstance(call, ast.Call):
        return None
    return call.args[2] if len(call.args) > 2 else keyword_value(call, "strides")


def held_view(arrays: RecordedArrays, node: ast.AST, spot: Spot, made: Made) -> HeldArray | None:
    """The array that a variable held, where that is what the call returned."""
    return next(
        (item for part, at in ((node, spot), *made.through) if (item := arrays.held(part, at)) is not None), None
    )


def span(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """How far before the first element a view begins, and how far behind that its last one does."""
    steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    return sum(step for step in steps if step < 0), sum(step for step in steps if step > 0)
