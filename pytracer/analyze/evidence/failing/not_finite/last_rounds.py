"""How many elements a value had in the round before the failing one, by the memory that lines took for its arithmetic.

A storage of a CPU is as long as its elements are. Of `ratio * advantage` every result has at least as many elements as
`advantage`: where all of them had 4 bytes, it had one element, of float32.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.not_finite.hazard import Hazard
from pytracer.analyze.evidence.lifetime.where_made import own_line
from pytracer.analyze.evidence.slicing.spots import END
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import own_nodes
from pytracer.decode.types.snapshot import Storage

_ONE, _LEAST = 4, 2  # bytes of a float32; storages, as one may be of something else
_ELEMENTWISE = frozenset(
    ("exp", "log", "clamp", "clip", "clamp_min", "clamp_max", "where", "minimum", "maximum", "abs", "pow", "square",
     "sqrt", "relu", "sigmoid", "tanh", "detach", "neg")
)  # fmt: skip
_EITHER = frozenset(("max", "min"))  # of one operand its largest, of two each pair's
_OTHER_TYPES = Pattern(r"\b(?:half|bfloat16|float16|int8|uint8|bool|cuda|autocast)\b")  # anywhere in the function


def had_one_element(at: FailingLine, hazard: Hazard) -> bool:
    """Of `advantage.std()`: whether the last time its function computed with `advantage`, that had one element."""
    name = variable(hazard.operand) if hazard.operand is not None else None
    storages = getattr(at.snapshot, "storages", None)
    if name is None or storages is None or _OTHER_TYPES.search(ast.unparse(hazard.spot.scope)):
        return False
    lines = {*_elementwise(hazard, name)}
    return bool(lines) and _are_single(storages, hazard, lines)


def _are_single(storages: Iterable[Storage], hazard: Hazard, lines: set[int]) -> bool:
    """Whether all that these lines allocated in the last epoch that the hazard's line has is of one element."""
    found: list[tuple[int, int, int]] = []
    for item in storages:
        frame = own_line(item.allocated_by) if not item.older and item.device == "cpu" else None
        if frame is not None and frame.file == hazard.spot.file and frame.line in lines | {hazard.line}:
            found.append((item.allocated.epoch, frame.line or 0, item.nbytes))
    last = max((epoch for epoch, line, _ in found if line == hazard.line), default=None)
    sizes = [nbytes for epoch, line, nbytes in found if line in lines and epoch == last]
    return len(sizes) >= _LEAST and set(sizes) == {_ONE}


def _elementwise(hazard: Hazard, name: str) -> Iterator[int]:
    """Lines behind the hazard's that compute with it, and whose results are all as large or larger."""
    scope = hazard.spot.scope
    bound = min((line for line, _ in lines_that_bind(scope, name) if line > hazard.line), default=END)
    for item in own_nodes(scope):
        if not isinstance(item, ast.Assign) or not hazard.line < item.lineno < bound:
            continue
        if item.lineno == item.end_lineno and all(_keeps_size(node) for node in nodes_of(item.value)):
            sides = (side for node in nodes_of(item.value) if isinstance(node, ast.BinOp) for side in _sides(node))
            if any(variable(side) == name for side in sides):
                yield item.lineno


def _sides(node: ast.BinOp) -> tuple[ast.expr, ast.expr]:
    return node.left, node.right


def _keeps_size(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return not isinstance(node.op, ast.MatMult)
    if isinstance(node, ast.Call):
        name = called_name(node)
        of_torch = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "torch"
        return name in _ELEMENTWISE or (name in _EITHER and len(node.args) > int(of_torch) and not node.keywords)
    return not isinstance(node, (ast.Subscript, ast.Compare, ast.comprehension, ast.Lambda))
