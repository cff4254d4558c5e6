"""torch.einsum() with operands that do not fit its formula: whose letter has which size."""

from __future__ import annotations

import ast

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.syntax.calls import called_name

_SIZE = Pattern(
    r"einsum\(\): subscript (\w) has size (\d+) for operand (\d+) which does not broadcast with .*size (\d+)"
)


def unequal_letters(at: FailingLine) -> str | None:
    """By the shapes of the operands."""
    found, call = _SIZE.search(at.message), at.only(ast.Call)
    if found is None or call is None or called_name(call) != "einsum":
        return None
    first = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
    formula = first if isinstance(first, str) else ""
    terms = formula.replace(" ", "").partition("->")[0].split(",") if formula else []
    operands = [(item, at.shape(item)) for item in call.args[1:]]
    if len(terms) != len(operands) or "..." in str(formula):
        return None
    letter, size, wanted = found[1], int(found[2]), int(found[4])
    told = []
    for term, (item, shape) in zip(terms, operands, strict=True):
        if letter in term and shape is not None and len(term) == len(shape.sizes):
            held = shape.sizes[term.index(letter)]
            told.append((item, shape, term, held))
    odd = next((part for part in told if part[3] == size), None)
    other = next((part for part in told if part[3] == wanted), None)
    if odd is None or other is None:
        return None
    item, shape, term, _ = odd
    place = term.index(letter)
    one = f"In `{formula}`, {letter} is dimension {place} of `{source(item)}` {shape.words}, {size}"
    two = f"and dimension {other[2].index(letter)} of `{source(other[0])}` {other[1].words}, {wanted}"
    if shape.sizes.count(wanted) == 1:
        swapped = shape.sizes.index(wanted)
        return (
            f"{one}, {two}. `{source(item)}` has its {wanted} in dimension {swapped}: pass "
            f"`{source(item)}.transpose({min(place, swapped)}, {max(place, swapped)})`, or write its letters in that "
            "order."
        )
    came = at.came(item) or at.came(other[0])
    return f"{one}, {two}: they must be equal{came}."
