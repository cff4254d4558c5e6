"""Values that a call cannot take: more items or other parts than a tensor has, parameters out of their range."""

from __future__ import annotations

import ast
import re

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.numbers import number_at
from pytracer.analyze.evidence.failing.tensors.last_layers import last_layer
from pytracer.analyze.evidence.failing.usage.settings import whence
from pytracer.analyze.evidence.syntax.calls import called_name, keyword_value
from pytracer.analyze.evidence.syntax.names import variable

_TOPK = "selected index k out of range"
_PARTS = Pattern(
    r"split_sizes to sum exactly to (\d+) \(input tensor's size at dimension (-?\d+)\), "
    r"but got split_sizes=\[([\d, ]*)\]"
)

_CONSTRAINT = Pattern(
    r"^Expected parameter (\w+) \(\w+ of shape [^)]*\)\) of distribution (\w+)\(.*?"
    r"to satisfy the constraint (\w+)\(([^)]*)\), but found invalid values:(.*)", re.DOTALL
)  # fmt: skip
_OTHERS = {"Gamma.rate": 1, "StudentT.loc": 1, "StudentT.scale": 2, "Weibull.scale": 0, "Weibull.concentration": 1}
_OTHERS |= {"HalfNormal.scale": 0, "HalfCauchy.scale": 0, "Pareto.scale": 0, "VonMises.concentration": 1}
_OTHERS |= dict.fromkeys(("Binomial.probs", "NegativeBinomial.probs", "RelaxedBernoulli.probs"), 1)
_OTHERS |= {"RelaxedOneHotCategorical.probs": 1, "Multinomial.probs": 1}
_BOUND = {
    "GreaterThan": "F.softplus(x) + 1e-4, or exp() of its logarithm",
    "GreaterThanEq": "F.softplus(x), or a clamp(min=...)",
    "Interval": "torch.sigmoid(x), or pass logits= instead of probs=",
    "Simplex": "torch.softmax(x, -1), or pass logits= instead of probs=",
}


def more_than_there_is(at: FailingLine) -> str | None:
    """By the shape of the tensor."""
    if _TOPK in at.message:
        return _too_many_asked(at)
    found = _PARTS.search(at.message)
    return _other_sum(at, found) if found is not None else None


def _too_many_asked(at: FailingLine) -> str | None:
    """topk() of more than there are."""
    call = at.only(ast.Call)
    if call is None or not isinstance(call.func, ast.Attribute):
        return None
    whole = variable(call.func.value) == "torch"
    given = [*call.args] if whole else [call.func.value, *call.args]
    named = {item.arg: item.value for item in call.keywords}
    k = given[1] if len(given) > 1 else named.get("k")
    place = given[2] if len(given) > 2 else named.get("dim")
    shape, count = at.shape(given[0]) if given else None, number_at(at, k)
    last = number_at(at, place) if place is not None else -1
    if k is None or shape is None or type(count) is not int or type(last) is not int:
        return None
    last %= len(shape.sizes)
    if count <= shape.sizes[last]:
        return None
    name = source(given[0])
    made = last_layer(at, name) or at.came(name)
    asked = (
        f"`{source(k)}` is {count}{whence(at, k)}"
        if not isinstance(k, ast.Constant)
        else f"line {at.line} asks for {count}"
    )
    return (
        f"{asked[0].upper()}{asked[1:]}, and `{name}` {shape.words}{made} has {shape.sizes[last]} in dimension {last}: "
        f"ask for `min({source(k)}, {name}.size({last}))`, or for no more than there are classes or items."
    )


def _other_sum(at: FailingLine, found: re.Match[str]) -> str | None:
    """split() into parts of another sum."""
    size, place, parts = int(found[1]), int(found[2]), [int(item) for item in re.findall(r"\d+", found[3])]
    call = at.only(ast.Call)
    owner = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    owner = call.args[0] if call is not None and owner is not None and variable(owner) == "torch" else owner
    shape = at.shape(owner)
    if call is None or owner is None or shape is None or not -len(shape.sizes) <= place < len(shape.sizes):
        return None
    if shape.sizes[place] != size:
        return None
    name = source(owner)
    given = next((item for item in call.args if item is not owner and not isinstance(item, ast.Constant)), None)
    asked = f"`{source(given)}`{whence(at, given)} has" if given is not None else f"line {at.line} has"
    made = last_layer(at, name) or at.came(name)
    return (
        f"`{name}` {shape.words}{made} has {size} in dimension {place % len(shape.sizes)}, and {asked} the parts "
        f"{found[3]}, {sum(parts)} in all, {abs(sum(parts) - size)} too {'many' if sum(parts) > size else 'few'}: make "
        "both from one list of sizes (`sum(sizes)` outputs)."
    )


def out_of_constraint(at: FailingLine) -> str | None:
    """A distribution's parameter that nothing bounds; NaN has causes of its own."""
    found, call = _CONSTRAINT.search(at.message), at.only(ast.Call)
    if found is None or call is None or re.search(r"\b(?:nan|inf)\b", found[5]) or found[3] not in _BOUND:
        return None
    named = keyword_value(call, found[1])
    if named is None and called_name(call) != found[2]:
        return None
    places = {"loc": 0, "scale": 1, "probs": 0, "rate": 0, "concentration": 0, "low": 0, "high": 1, **_OTHERS}
    place = places.get(f"{found[2]}.{found[1]}", places.get(found[1], len(call.args)))
    given = named if named is not None else call.args[place] if place < len(call.args) else None
    if given is None:
        return None
    made = last_layer(at, source(given)) or whence(at, given)
    return (
        f"`{source(given)}`{made} is {found[1]}= of {found[2]}, which must satisfy {found[3]}({found[4]}), and has "
        f"values that do not: bound it where it is made, by {_BOUND[found[3]]}."
    )
