"""Tensors of the host among those of a device: which variable of the line it is, and where it was made."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import names_in
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.usage.settings import whence
from pytracer.analyze.evidence.syntax.calls import passed_values

_REFUSED = Pattern(
    r"cannot be accessed from Triton|Expected all tensors to be on the same device|found at least two devices|"
    r"Tensor on device cpu is not on the expected device"
)
_DEVICE = Pattern(r" on ((?!cpu)[a-z]+(?::\d+)?)\b")


def tensor_of_the_host(at: FailingLine) -> str | None:
    """The only one that is not on the device of all others; a number as a tensor may stay there."""
    if not _REFUSED.search(at.message) or at.node is None:
        return None
    call = at.only(ast.Call)
    passed = passed_values(call) if call is not None else [at.node]
    held = {name: at.values[name] for part in passed for name in names_in(part) if at.shape(name) is not None}
    on_device = {name: found[1] for name, value in held.items() if (found := _DEVICE.search(value))}
    on_host = [name for name in held if name not in on_device and (shape := at.shape(name)) and shape.sizes]
    if len(on_host) != 1 or len(set(on_device.values())) != 1:
        return None
    name, (other, device) = on_host[0], next(iter(on_device.items()))
    return (
        f"`{name}`{whence(at, name)} is on the CPU, and `{other}`{whence(at, other)} on {device}: pass "
        f"`{name}.to({other}.device)`, or make `{name}` there."
    )
