"""A sum that is 0 since the thread flushes subnormal numbers to 0, and what made it do so.

torch.set_flush_denormal(), or a library that gcc linked with -ffast-math, which sets that mode as it is loaded. Only
of sums of what exp() gives, where numbers are that small; a count of elements is not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.not_finite.hazard import Hazard
from pytracer.analyze.evidence.failing.recorded import shape_of
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_RECORDED = ("subnormal numbers", "flushed to 0")
_FLAG = Pattern(r"(?:^|\s)(-ffast-math|-Ofast|-funsafe-math-optimizations)(?=\s|$)")
_SMALLEST = {"float64": "2.2e-308", "float32": "1.2e-38", "bfloat16": "1.2e-38", "float16": "6.1e-5"}


def with_flushing(at: FailingLine, hazard: Hazard) -> Hazard:
    """The same where the mode was on and may be the reason."""
    name, value = _RECORDED
    if hazard.tiny is None or at.values.get(name) != value or not isinstance(hazard.node, ast.BinOp):
        return hazard
    shape = shape_of(at.value_at(hazard.node.left, hazard.spot) or at.value(hazard.node.left))
    least = _SMALLEST.get(shape.dtype if shape is not None else "")
    below = f" (below {least})" if least is not None else ""
    (begin, make), (since, instead) = hazard.tiny, _made(at)
    says = f"{begin} is subnormal{below}, as this thread flushes these to 0"
    return structs.replace(hazard, says=says, since=since, make=f"{make}, or {instead}")


def _made(at: FailingLine) -> tuple[str, str]:
    """What most likely set the mode, and what to do about that."""
    asked = [
        at.in_file(file, node.lineno)
        for file, tree in at.files.items()
        for node in nodes_of(tree)
        if isinstance(node, ast.Call) and called_name(node) == "set_flush_denormal" and _is_on(node)
    ]
    if asked:
        by = f", most likely by torch.set_flush_denormal(True) at {asked[0]}"
        return by, f"leave out torch.set_flush_denormal(True) at {asked[0]}"
    built = {
        (at.in_file(file, node.lineno), flag[1])
        for file, tree in at.files.items()
        for node in _texts(tree)
        if (flag := _FLAG.search(str(node.value)))
    }
    if len(built) == 1:
        place, option = built.pop()
        return (
            f", most likely by the library that {place} builds with {option}",
            f"build the library at {place} without {option}, as loading it sets that mode",
        )
    return "", "find what set that mode: most often a library that was linked with -ffast-math"


def _texts(tree: ast.Module) -> Iterator[ast.Constant]:
    """Those that the program uses; docstrings are none."""
    nodes = [*nodes_of(tree)]
    idle = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in idle:
            yield node


def _is_on(node: ast.Call) -> bool:
    """Whether it is given True itself: what a variable has is not known."""
    given = passed_values(node)
    return bool(given) and isinstance(given[0], ast.Constant) and given[0].value is True
