"""NaN and infinity: the first line on the way whose operands were finite, and whose result is not."""

from __future__ import annotations

import ast
import re

from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.slicing.spots import Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind
from pytracer.analyze.evidence.syntax.scopes import is_parameter, own_nodes

_MESSAGE = re.compile(r"invalid values|\bnan\b|\binf\b|contains either|not finite|non-?finite|NaN", re.IGNORECASE)
_NOT = re.compile(r"(?:\bwith (?:nan|inf)|(?:^|\s)-?(?:nan|inf))$")
_HOPS = 8


def first_not_finite(at: FailingLine) -> str | None:
    """By the recorded values of this frame and its callers'."""
    if not _MESSAGE.search(at.message) or at.node is None:
        return None
    named = [name for name in names_in(at.node) if _NOT.search(at.values.get(name, ""))]
    spot = at.slice.spot(0)
    if len(named) != 1 or spot is None:
        return None
    name, first = named[0], named[0]
    for _ in range(_HOPS):
        bound = [item for item in lines_that_bind(spot.scope, name) if item[0] < spot.line]
        if not bound:
            step = at.slice.argument(name, spot) if is_parameter(spot.scope, name) else None
            if step is None:
                return None
            node, spot = step
            passed = at.value_at(node, spot)
            if passed is not None and _NOT.search(passed):
                name = ast.unparse(node)
                continue
            return _made_by(at, first, name, node, spot) if isinstance(node, (ast.Call, ast.BinOp)) else None
        line, value = max(bound, key=lambda item: item[0])
        if value is None:
            return None
        inner = names_in(value)
        told = {item: held for item in inner if (held := _at(at, spot, item)) is not None}
        bad = [item for item, held in told.items() if item != name and _NOT.search(held)]
        if len(bad) == 1:
            name, spot = bad[0], Spot(spot.file, spot.tree, spot.scope, line, spot.depth)
            continue
        if bad or name in inner or spot.depth is None:
            return None
        return _made_by(at, first, name, value, Spot(spot.file, spot.tree, spot.scope, line, spot.depth))
    return None


def _at(at: FailingLine, spot: Spot, name: str) -> str | None:
    return at.value_at(ast.parse(name, mode="eval").body, spot)


def _made_by(at: FailingLine, first: str, name: str, node: ast.AST, spot: Spot) -> str | None:
    """`node`: computed from what is finite, as far as is known."""
    place = at.place(spot, getattr(node, "lineno", spot.line))
    own = at.slice.function(node, spot) if isinstance(node, ast.Call) else None
    if isinstance(node, ast.Call):
        for item in node.args:  # `policy.act(normalize(row))`
            inner = at.slice.function(item, spot) if isinstance(item, ast.Call) else None
            own = own or inner
    division = _division(node) or (_division_of(own[0]) if own is not None else None)
    chain = f"`{name}`" if name == first else f"`{first}` has what `{name}` has, and that"
    where = f"{place} (`{source(node)}`)"
    if division is not None:
        line, divisor, text = division
        inside = f", by line {line} (`{text}`)" if line != getattr(node, "lineno", 0) else ""
        return (
            f"{chain} is not finite since {where}{inside}: `{divisor}` is 0 there, as the deviation of what never "
            f"changes is, or not finite itself. Divide by `({divisor} + 1e-8)` or by a clamped one."
        )
    if isinstance(node, ast.Call) and at.slice.is_layer(node.func, spot):
        given = [item for item in names_in(node) if (told := _at(at, spot, item)) is not None and "float" in told]
        if not given:
            return None
        return (
            f"{chain} is not finite since {where}, and `{given[0]}` is: so the weights are not, or a forward() "
            "divides by 0. Usual: an earlier step with a loss or gradient without bounds; check torch.isfinite(loss) "
            "before each step, lower the rate, clip gradients."
        )
    return None


def _division(node: ast.AST) -> tuple[int, str, str] | None:
    found = [item for item in ast.walk(node) if isinstance(item, ast.BinOp) and isinstance(item.op, ast.Div)]
    if len(found) != 1 or isinstance(found[0].right, ast.Constant):
        return None
    if re.search(r"eps|1e-|clamp|\+ ", ast.unparse(found[0].right)):
        return None
    return found[0].lineno, source(found[0].right), source(node)


def _division_of(function: ast.FunctionDef) -> tuple[int, str, str] | None:
    values = [item.value for item in own_nodes(function) if isinstance(item, (ast.Return, ast.Assign))]
    found = [held for value in values if value is not None and (held := _division(value)) is not None]
    return found[0] if len(found) == 1 else None
