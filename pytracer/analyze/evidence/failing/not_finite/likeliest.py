"""Of several expressions that can make NaN: those of one line that say the same, and the one to look at first."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.not_finite.hazard import Hazard
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.scopes import statement_at

_LOGS = ("log", "log2", "log10")
_PROBABILITY = Pattern(r"softmax|\.gather\(|prob|\bpi\b")  # above 0, but for an underflow


def without_repeats(found: Sequence[Hazard]) -> list[Hazard]:
    """`torch.log(new) - torch.log(old)` is one: the logs of both."""
    kept: list[Hazard] = []
    for item in found:
        at = next((n for n, other in enumerate(kept) if _same_log(other, item)), None)
        if at is None:
            kept.append(item)
            continue
        both = f"takes the logs of `{_of(kept[at])}` and `{_of(item)}`, -inf at 0 and NaN below"
        kept[at] = structs.replace(kept[at], says=both, make="clamp both to 1e-8 and more first")
    return kept


def _same_log(one: Hazard, other: Hazard) -> bool:
    same = (one.spot.file, one.line) == (other.spot.file, other.line)
    return same and all(item.make.startswith("take the log of ") and _is_log(item) for item in (one, other))


def _is_log(item: Hazard) -> bool:
    return isinstance(item.node, ast.Call) and called_name(item.node) in _LOGS


def _of(item: Hazard) -> str:
    """`prob_a` of `torch.log(prob_a)` and of `prob_a.log()`."""
    node = item.node
    if not isinstance(node, ast.Call):
        return source(node)
    if node.args:
        return source(node.args[0])
    return source(node.func.value) if isinstance(node.func, ast.Attribute) else source(node)


def likeliest(found: Sequence[Hazard]) -> Hazard | None:
    """A batch is divided by its own spread, and all others take the log of a probability, which is hardly ever 0."""
    spreads = [item for item in found if item.only == "single" and _normalizes(item)]
    rest = [item for item in found if item not in spreads]
    if len(spreads) != 1 or not rest or not all(_is_log(item) and _of_probability(item) for item in rest):
        return None
    return spreads[0]


def _normalizes(item: Hazard) -> bool:
    """`(a - a.mean()) / (a.std() + 1e-8)`."""
    statement = statement_at(item.spot.tree, item.line)
    return statement is not None and any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div)
        and any(part is item.node for part in nodes_of(node.right))
        for node in nodes_of(statement)
    )


def _of_probability(item: Hazard) -> bool:
    """Each of those whose logs it takes."""
    taken = item.says.split("`")[1::2]
    return bool(taken) and all(_PROBABILITY.search(text) is not None for text in taken)
