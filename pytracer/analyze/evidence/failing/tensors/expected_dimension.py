"""A check of a library that names an argument, one of its dimensions, and the size that it expected there."""

from __future__ import annotations

import ast
import re

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.expressions import names_in, source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.not_finite.reason import NOT_FINITE
from pytracer.analyze.evidence.failing.numbers import number_at
from pytracer.analyze.evidence.failing.recorded import MOST_ELEMENTS, shape_of
from pytracer.analyze.evidence.syntax.calls import argument_at, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of
from pytracer.decode.types.snapshot import records_values

# torch 2.13, nn/functional.py
_EXPECTED = Pattern(r"Expected (\w+)\.(?:shape|size)[(\[](\d+)[)\]] to be (\d+),? but got (\d+)")
_CLASSES = "Class values must be smaller than num_classes"
_SPATIAL = "only batches of spatial targets supported (3D tensors) but got targets of dimension: 4"
_ENTRY = Pattern(r"invalid multinomial distribution \(encountering probability entry < 0\)")


def unexpected_dimension(at: FailingLine) -> str | None:
    """The argument as the program passes it, and whether it fits transposed."""
    if _CLASSES in at.message:
        return _classes(at)
    if _ENTRY.search(at.message):
        return _entry(at)
    if _SPATIAL in at.message:
        return _one_channel(at)
    found, call = _EXPECTED.search(at.message), at.only(ast.Call)
    if found is None or call is None or at.own:
        return None
    name, place, wanted, got = found[1], int(found[2]), int(found[3]), int(found[4])
    given = [item.value for item in call.keywords if item.arg == name]
    others = passed_values(call)
    fits = [
        (item, shape)
        for item in given or others
        if (shape := at.shape(item)) is not None and place < len(shape.sizes) and shape.sizes[place] == got
    ]
    if len(fits) != 1:
        return None
    item, shape = fits[0]
    turned = len(shape.sizes) == 2 and shape.sizes[1 - place] == wanted
    how = (
        f"its dimensions are exchanged: make it the other way round, or pass `{source(item)}.T`"
        if turned
        else "make it for the sizes of the other arguments"
    )
    came = at.came(item)
    return f"`{source(item)}` {shape.words}{came} has {got} in dimension {place}, where {wanted} is needed: {how}."


def _one_channel(at: FailingLine) -> str | None:
    """Class numbers of [N, 1, H, W], as masks are read with their channel."""
    call = at.only(ast.Call)
    given = argument_at(call, 1, "target") if call is not None else None
    names = names_in(given) if given is not None else []
    shape = at.shape(names[0]) if len(names) == 1 else None
    if given is None or shape is None or len(shape.sizes) != 4 or shape.sizes[1] != 1 or shape.sizes[3] in (1, 3):
        return None
    sizes = ", ".join(map(str, (shape.sizes[0], *shape.sizes[2:])))
    kind = ".long()" if isinstance(given, ast.Name) and "float" in (at.value(given) or "") else ""
    return (
        f"The target `{names[0]}` {shape.words}{at.came(names[0])} has a channel, and cross entropy takes class "
        f"numbers without one, [{sizes}] here: pass `{source(given)}.squeeze(1){kind}`."
    )


def _entry(at: FailingLine) -> str | None:
    """A weight that is not 0 or more: NaN is none of both."""
    call = at.only(ast.Call)
    given = [node for item in passed_values(call) for node in nodes_of(item)] if call is not None else []
    given += [call.func.value] if call is not None and isinstance(call.func, ast.Attribute) else []
    floats = [value for item in given if "float" in (value := at.value(item) or "")]
    if any(NOT_FINITE.search(item) for item in floats):
        return None  # what made it is looked for elsewhere
    read = len(floats) == 1 and (shape := shape_of(floats[0])) is not None and 0 < shape.elements <= MOST_ELEMENTS
    read = read and " on " not in floats[0] and records_values(at.snapshot)
    what = "negative" if read else "negative or NaN"
    return (
        f"A weight is {what}: multinomial() and WeightedRandomSampler take weights of 0 or more, and draw by their "
        "proportions. Look at what subtracts from them, or passes logarithms (softmax() or exp() before), "
        f"{'or divides by 0, ' if what != 'negative' else ''}on the way to line {at.line}."
    )


def _classes(at: FailingLine) -> str | None:
    """one_hot() of values that are no classes."""
    call = at.only(ast.Call)
    named = {item.arg: item.value for item in call.keywords} if call is not None else {}
    given = call.args[0] if call is not None and call.args else None
    count = call.args[1] if call is not None and len(call.args) > 1 else named.get("num_classes")
    number = number_at(at, count) if count is not None else None
    span = re.search(r" (-?\d+)\.\.(-?\d+)$", at.value(given) or "") if given is not None else None
    if given is None or count is None or type(number) is not int or span is None or int(span[2]) < number:
        return None
    often = " 255 often marks what shall be ignored: take it out first." if int(span[2]) == 255 else ""
    return (
        f"`{source(given)}`{at.came(given)} reaches {span[2]}, and there are {number} classes, 0 to "
        f"{number - 1} (`{source(count)}`): map the values to these, or raise the number.{often}"
    )
