"""NaN and infinity: what made it, by the recorded values of this frame and its callers', and by the source.

The first line on the way whose operands were finite and whose result is not; where that is a layer with such weights,
the loss of the update that wrote them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

import msgspec
from msgspec import structs

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.not_finite.flushed import with_flushing
from pytracer.analyze.evidence.failing.not_finite.hazard import WEAK, Hazard
from pytracer.analyze.evidence.failing.not_finite.reach import Part, parts_of
from pytracer.analyze.evidence.failing.not_finite.reason import (
    NOT_FINITE,
    OF_TENSOR,
    TELLS_NOT_FINITE,
    all_values,
    asked_names,
    is_about_not_finite,
    tested,
)
from pytracer.analyze.evidence.failing.not_finite.warned import with_warned
from pytracer.analyze.evidence.failing.not_finite.weights import (
    MOST_LINES,
    Weights,
    hazard_advice,
    hazard_subject,
    hazards_of,
    losses,
    of_weights,
    rate,
    weights_of,
)
from pytracer.analyze.evidence.failing.recorded import MOST_ELEMENTS, shape_of
from pytracer.analyze.evidence.slicing.spots import END, Spot
from pytracer.analyze.evidence.syntax.bindings import lines_that_bind, lines_that_fill
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.names import variable
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.analyze.evidence.syntax.reaching import ENTRY, reaching
from pytracer.analyze.evidence.syntax.scopes import function_named, is_parameter, own_nodes

_GRADIENTS = Pattern(r"is non-finite, so it cannot be clipped")
_ANOMALY = Pattern(r"Function '(\w+?)Backward\d*' returned nan values")
_OPERATORS = {
    "Sqrt": r"sqrt\(|\*\* 0?\.5", "Pow": r"\*\*|pow\(", "Log": r"log\(", "Div": r" / ", "Acos": r"acos\(|arccos\(",
    "Asin": r"asin\(|arcsin\(", "Exp": r"exp\(", "Std": r"std\(", "Var": r"var\(", "Rsqrt": r"rsqrt\(",
}  # fmt: skip
_PLAIN = Pattern(r"-?[\d.]+(?:e[+-]?\d+)?$|True$|False$|None$")
_CLAMP = Pattern(r"`([^`]+)\.clamp\(min=1\)`")
_OWN = Pattern(r"param|grad|state|weight|output|pred|loss|model")  # a loop over these is over no data
_BEGINS = Pattern(r" -inf |puts inf in \(`[^`]*\bfull(?:_like)?\(")
_HOPS = 8


class _Origin(msgspec.Struct, frozen=True):
    """The line that made it: `node` of operands that were finite as far as is known; None of what a loop gives."""

    name: str
    node: ast.AST | None
    spot: Spot
    given: str | None  # a finite one
    whole: bool = False  # all others that it reads are finite
    several: bool = False  # more than one line can have made it: `node` is the variable


def first_not_finite(at: FailingLine) -> str | None:
    """What made it, and what to write there."""
    found = _with_warned(at)
    return found[1] if found is not None else None


def not_finite_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _with_warned(at)
    return found[0] if found is not None else None


def _with_warned(at: FailingLine) -> tuple[str, str] | None:
    return with_warned(at, _cause(at)) if at.node is not None and is_about_not_finite(at) else None


def _cause(at: FailingLine) -> tuple[str, str] | None:
    weights = weights_of(at)
    named = [name for name in asked_names(at) if NOT_FINITE.search(at.values.get(name, ""))]
    spot = at.slice.spot(0)
    if spot is None:
        return None
    if _ANOMALY.search(at.message) or _GRADIENTS.search(at.message):
        return _of_gradients(at)
    if any(".grad" in ast.unparse(item) for item in tested(at)):
        return _of_gradients(at)
    for name in named:
        origin = _origin(at, name, spot)
        found = _of_origin(at, name, origin, weights) if origin is not None else None
        if found is not None:
            return found
    if weights is not None and weights.bad:
        return of_weights(at, weights, _data(at))
    if named or not TELLS_NOT_FINITE.search(at.message):
        return _data(at)
    return _below_zero(at, spot) or _of_expression(at, spot)


def _at(at: FailingLine, spot: Spot, name: str) -> str | None:
    return at.value_at(ast.parse(name, mode="eval").body, spot)


def _is_finite(at: FailingLine, name: str, spot: Spot) -> bool:
    """As far as is recorded: a tensor on the CPU that is small enough to be read, or a number."""
    value = _at(at, spot, name)
    if value is None or NOT_FINITE.search(value) or " on " in value:
        return False
    shape = shape_of(value)
    return 0 < shape.elements <= MOST_ELEMENTS if shape is not None else _PLAIN.match(value) is not None


def _origin(at: FailingLine, name: str, spot: Spot) -> _Origin | None:
    """Back over lines and callers, as long as one operand is not finite, either."""
    for _ in range(_HOPS):
        bound = [item for item in lines_that_bind(spot.scope, name) if item[0] < spot.line]
        if not bound:
            step = at.slice.argument(name, spot) if is_parameter(spot.scope, name) else None
            if step is None:
                return None
            node, spot = step
            spot = structs.replace(spot, line=getattr(node, "lineno", spot.line))
            passed = at.value_at(node, spot)
            if passed is not None and NOT_FINITE.search(passed):
                name = ast.unparse(node)
                if not isinstance(node, ast.Name):
                    return None
                continue
        else:
            line, value = max(bound, key=lambda item: item[0])
            later = [item for item in lines_that_change(spot.scope, name, spot.tree) if line < item < spot.line]
            ways = reaching(spot.scope, name, spot.line, True) or frozenset()
            ways = ways if is_parameter(spot.scope, name) else ways - {ENTRY}
            ways -= {at_ for at_, held in bound if isinstance(held, ast.Name) and _is_finite(at, held.id, spot)}
            if later or len(ways) > 1 or (len(bound) > 1 and _is_other_branch(spot, line)):
                made = ast.copy_location(ast.Name(name, ast.Load()), ast.Constant(0, lineno=max([line, *later])))
                return _Origin(name, made, spot, None, several=True)
            spot = structs.replace(spot, line=line)
            if value is None:
                return _Origin(name, None, spot, None)
            node = value
        inner = names_in(node)
        bad = [item for item in inner if item != name and NOT_FINITE.search(_at(at, spot, item) or "")]
        if bad:
            name = bad[0]
            continue
        if spot.depth is None or isinstance(node, (ast.Import, ast.ImportFrom)):
            return None
        finite = [item for item in inner if "float" in (_at(at, spot, item) or "") and _is_finite(at, item, spot)]
        whole = bool(finite) and all(
            _is_finite(at, item, spot) or not _at(at, spot, item) for item in inner if item != name
        )
        return _Origin(name, node, spot, finite[0] if finite and name not in inner else None, whole)
    return None


def lines_that_change(scope: ast.AST, name: str, tree: ast.Module) -> list[int]:
    """Those that fill it, work on it in place, or pass it to a function of the program that returns nothing here."""
    found = lines_that_fill(scope, name)
    for item in own_nodes(scope):
        if isinstance(item, ast.Expr) and isinstance(item.value, ast.Call):
            call, inner = item.value, item.value.func
            while isinstance(inner, (ast.Attribute, ast.Call)) and variable(inner) is None:
                inner = inner.value if isinstance(inner, ast.Attribute) else inner.func
            in_place = "_(" in ast.unparse(call) and variable(inner) == name
            given = any(variable(part) == name for part in call.args)
            if in_place or (given and function_named(tree, called_name(call) or "") is not None):
                found.append(item.lineno)
    return sorted(found)


def _of_origin(at: FailingLine, first: str, origin: _Origin, weights: Weights | None) -> tuple[str, str] | None:
    kind = _kind(at, origin)
    what = f"`{origin.name}`" if origin.name == first else f"`{first}` is computed from `{origin.name}`, and that"
    if origin.node is None:
        return _given(at, f"`{origin.name}`", kind, origin)
    bad, layer = weights is not None and weights.bad, _has_layer(at, origin)
    if bad and layer and weights is not None:
        return of_weights(at, weights, _data(at))
    if origin.several:
        return _of_several(at, what, kind, origin) if not layer or weights is not None else None
    where = f"{at.place(origin.spot, getattr(origin.node, 'lineno', origin.spot.line))} (`{source(origin.node)}`)"
    found = _forward(at, origin.node, origin.spot)
    if found and not (layer and weights is None and found[0].weight == WEAK):
        subject = f"{what} is {kind} since {where}"
        own = len(found) == 1 and found[0].line == getattr(origin.node, "lineno", 0)
        told = f"; that {found[0].says}{found[0].since}" if own else hazard_subject(at, found)
        return f"{subject}{told}", f"{subject}. {hazard_advice(at, found)}"
    if layer and origin.given is not None and (weights is None or weights.bad):
        subject = f"{what} is not finite since {where}, and `{origin.given}` is"
        return subject, (
            f"{subject}: so the weights are not, or a forward() divides by 0. Usual: an earlier step with a loss or "
            "gradient without bounds; check torch.isfinite(loss) before each step, lower the rate, clip gradients."
        )
    if layer and origin.whole and _has_finite_weights(at, origin):
        subject = f"{what} is {kind} since {where}, with finite weights"
        return (
            subject,
            f"{subject}: numbers beyond 3e38 have become inf there, or a layer divides by 0. {rate(at)}".rstrip(),
        )
    return None


def _of_several(at: FailingLine, what: str, kind: str, origin: _Origin) -> tuple[str, str] | None:
    """`loss += term`: the lines that can make one, of all that it is computed from."""
    found = _forward(at, origin.node, origin.spot) if origin.node is not None else []
    if not found or found[0].weight == WEAK:
        return None
    subject = f"{what} is {kind}"
    return f"{subject}{hazard_subject(at, found)}", f"{subject}. {hazard_advice(at, found)}"


def _is_other_branch(spot: Spot, line: int) -> bool:
    """Whether that line is below a condition that the other line is not below."""
    return any(
        isinstance(item, (ast.If, ast.Try, ast.Match))
        and item.lineno < line <= (item.end_lineno or 0)
        and not item.lineno <= spot.line <= (item.end_lineno or 0)
        for item in own_nodes(spot.scope)
    )


def _has_finite_weights(at: FailingLine, origin: _Origin) -> bool:
    """Of each module that the line calls, as far as they are variables of its frame."""
    values = at.values_at(origin.spot.depth) if origin.spot.depth is not None else {}
    text = ast.unparse(origin.node) if origin.node is not None else ""
    held = {name.removeprefix("parameters of "): value for name, value in values.items() if "parameters of " in name}
    used = [value for name, value in held.items() if re.search(rf"(?<![\w.]){re.escape(name)}\b", text)]
    return bool(used) and all(value.endswith("finite") for value in used)


def _kind(at: FailingLine, origin: _Origin) -> str:
    value = _at(at, origin.spot, origin.name) or ""
    return "infinite" if value.endswith("inf") else "NaN"


def _has_layer(at: FailingLine, origin: _Origin) -> bool:
    if origin.node is None:
        return False
    known = _known(at)
    return any(
        isinstance(item, ast.Call) and at.slice.is_layer(item.func, part.spot)
        for part in parts_of(at, origin.node, origin.spot, known)
        for item in nodes_of(part.node)
    )


def _known(at: FailingLine) -> Callable[[str, Spot], bool]:
    return lambda name, spot: _is_finite(at, name, spot)


def _forward(at: FailingLine, node: ast.AST, spot: Spot) -> list[Hazard]:
    arrays = any(" array" in value for _, value, _ in all_values(at) if NOT_FINITE.search(value))
    found = hazards_of(
        at, [Part(node, spot)], lambda item: not item.backward and not (arrays and item.only == "single"), _known(at)
    )
    found = [with_flushing(at, item) for item in found]
    return [
        structs.replace(item, make=_CLAMP.sub(r"`np.maximum(\1, 1)`", item.make)) if arrays else item for item in found
    ]


def _given(at: FailingLine, what: str, kind: str, origin: _Origin) -> tuple[str, str] | None:
    """By a loop: the data has it."""
    loop = next(
        (
            item
            for item in own_nodes(origin.spot.scope)
            if isinstance(item, (ast.For, ast.AsyncFor)) and item.lineno == origin.spot.line
        ),
        None,
    )
    if loop is None or _OWN.search(ast.unparse(loop.iter)):
        return None
    of_layer = (
        isinstance(item, ast.Call) and at.slice.is_layer(item.func, part.spot)
        for part in parts_of(at, loop.iter, origin.spot)
        for item in nodes_of(part.node)
    )
    if any(of_layer):
        return None
    place = at.place(origin.spot, loop.lineno)
    subject = f"{what} has {'NaN' if kind == 'NaN' else 'inf'} as `{source(loop.iter)}` gives it (line {loop.lineno})"
    subject = subject if place.startswith("line ") else subject.replace(f"line {loop.lineno}", place)
    found = _forward(at, loop.iter, structs.replace(origin.spot, line=loop.lineno)) or _of_samples(at)
    advice = hazard_advice(at, found) or "Look for it in the data, and drop or fill it where that is read."
    return f"{subject}{hazard_subject(at, found)}", f"{subject}: the data has it. {advice}"


def _of_samples(at: FailingLine) -> list[Hazard]:
    """Of what the program's datasets return."""
    return hazards_of(at, samples(at), lambda item: not item.backward)


def samples(at: FailingLine) -> list[Part]:
    """What the program's datasets and collating functions return."""
    return [
        Part(item.value, Spot(file, tree, function, item.lineno + 1))
        for file, tree in at.files.items()
        for function in nodes_of(tree)
        if isinstance(function, ast.FunctionDef) and (function.name == "__getitem__" or "collate" in function.name)
        for item in own_nodes(function)
        if isinstance(item, ast.Return) and item.value is not None
    ]


def _data(at: FailingLine) -> tuple[str, str] | None:
    """A tensor of a caller that is not finite, and that no layer has made."""
    for name, value, depth in all_values(at):
        spot = at.slice.spot(depth)
        shape = shape_of(value)
        if spot is None or not name.isidentifier() or not OF_TENSOR.search(value) or shape is None or not shape.sizes:
            continue  # a loss has no sizes
        origin = _origin(at, name, structs.replace(spot, line=END))
        if origin is None or _has_layer(at, origin):
            continue
        kind = "inf" if value.endswith("inf") else "NaN"
        if origin.node is None:
            return _given(at, f"`{name}`", kind if kind == "NaN" else "infinite", origin)
        found = _forward(at, origin.node, origin.spot)
        if not found or found[0].weight == WEAK or any(_BEGINS.search(item.says) for item in found):
            continue  # -inf in a mask, or inf to begin a minimum with, is as it should be
        place = at.place(origin.spot, getattr(origin.node, "lineno", origin.spot.line))
        made = "" if isinstance(origin.node, ast.Name) else f" ({place}: `{source(origin.node)}`)"  # only passed on
        subject = f"`{name}` has {kind}{made}"
        told = hazard_subject(at, found)
        return f"{subject}{told}", f"`{name}` has {kind}. {hazard_advice(at, found)}"
    return None


def _of_gradients(at: FailingLine) -> tuple[str, str] | None:
    """Of the loss whose backward() it was."""
    anomaly = _ANOMALY.search(at.message)
    like = re.compile(_OPERATORS[anomaly[1]]) if anomaly is not None and anomaly[1] in _OPERATORS else None
    found = hazards_of(at, losses(at), lambda item: like is None or like.search(ast.unparse(item.node)) is not None)
    if not found or (anomaly is None and found[0].weight == WEAK) or len(found) > MOST_LINES:
        return None
    what = "the norm of the gradients is not finite"
    if anomaly is None and not _GRADIENTS.search(at.message):
        what = "a gradient is not finite"
    if anomaly is not None:
        what = f"the gradient of {anomaly[1]} is NaN"
    advice = hazard_advice(at, found)
    where = " torch.where() or a mask behind it does not help: 0 times infinity is NaN." if found[0].backward else ""
    return f"{what}{hazard_subject(at, found)}", f"{what[0].upper()}{what[1:]}. {advice}{where}"


def _below_zero(at: FailingLine, spot: Spot) -> tuple[str, str] | None:
    """multinomial() of what is recorded without NaN and infinity."""
    call = at.only(ast.Call)
    if call is None or "element < 0" not in at.message or called_name(call) != "multinomial":
        return None
    given = call.args[0] if call.args else None
    if ast.unparse(call.func) != "torch.multinomial":
        given = call.func.value if isinstance(call.func, ast.Attribute) else None
    name = variable(given) if given is not None else None
    if name is None or "float" not in at.values.get(name, "") or not _is_finite(at, name, spot):
        return None
    subject = f"`{name}` is recorded without NaN and inf, so that an element is below 0"
    return subject, (
        f"{subject}{at.came(name)}. multinomial() takes probabilities: pass `torch.softmax({name}, dim=-1)` where "
        "these are logits."
    )


def _of_expression(at: FailingLine, spot: Spot) -> tuple[str, str] | None:
    """Made in the failing expression itself, of what is finite."""
    if at.node is None:
        return None
    names = [name for name in names_in(at.node) if "float" in at.values.get(name, "")]
    if not names or not all(_is_finite(at, name, spot) for name in names):
        return None
    found = hazards_of(at, [Part(at.node, spot)], lambda item: not item.backward, lambda *_: True)
    if len(found) != 1:
        return None
    return f"line {at.line} {found[0].says}", hazard_advice(at, found)
