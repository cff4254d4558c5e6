"""A standard deviation that a layer gives as it is, below 0."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.autograd.probabilities import last_layer
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name

_NEGATIVE = "normal expects all elements of std >= 0.0"
_POSITIVE = Pattern(r"^(?:ReLU|Softplus)$")


def negative_deviation(at: FailingLine) -> str | None:
    """`torch.normal(mu, self.sigma(h))`."""
    call = at.only(ast.Call) if _NEGATIVE in at.message else None
    if call is None or called_name(call) not in ("normal", "Normal"):
        return None
    given = argument_at(call, 1, "scale" if called_name(call) == "Normal" else "std")
    found = last_layer(at, given) if given is not None and "nan" not in (at.value(given) or "") else None
    if given is None or found is None or _POSITIVE.match(found[0]):
        return None
    return (
        f"The standard deviation `{source(given)}`{at.came(given)} is what {found[1]} gives, and may be below 0: pass "
        f"`torch.nn.functional.softplus({source(given)})`, or let that layer give its logarithm, and pass "
        f"`{source(given)}.exp()`."
    )
