"""A seed that NumPy does not take: torch's own has 64 bits, and -1 is a mark for none."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.numbers import whole_number
from pytracer.analyze.evidence.syntax.calls import called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_MESSAGE = "Seed must be between 0 and 2**32 - 1"
_OF_64_BITS = ("initial_seed", "seed")  # torch's, and its generators'


def seed_beyond(at: FailingLine) -> str | None:
    """Of the call that was given it."""
    call = at.only(ast.Call)
    if at.kind != "ValueError" or at.message != _MESSAGE or call is None or len(call.args) != 1:
        return None
    given = call.args[0]
    number = whole_number(at, given)
    made = at.made(given)
    came = f" ({at.shown(made)})" if made is not None and made.line != at.line else ""
    of_torch = [
        item
        for item in nodes_of(made.node if made is not None else given)
        if isinstance(item, ast.Call) and called_name(item) in _OF_64_BITS
    ]
    if number is not None and number < 0:
        return (
            f"`{source(given)}`{came} is {number}, and NumPy takes seeds from 0 to 4294967295: give one of these, or "
            "call it only where a seed is set."
        )
    if number is None and not of_torch:
        return None
    what = f"`{source(given)}`{came} is {number}" if number is not None else f"`{source(given)}`{came} has 64 bits"
    return (
        f"{what}, and NumPy takes seeds of 32 bits: write `{source(call.func)}({_within(given)} % 2**32)` at line "
        f"{at.line}."
    )


def _within(given: ast.expr) -> str:
    """With brackets where `%` would bind closer."""
    text = source(given)
    return text if isinstance(given, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)) else f"({text})"
