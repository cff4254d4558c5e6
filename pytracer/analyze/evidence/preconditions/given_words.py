"""Words for the arguments of a call: how large they are, what they hold, and where an expected number comes from."""

from __future__ import annotations

from collections.abc import Mapping

from pytracer._text import count_words, list_words
from pytracer.analyze.evidence.operators.operator import shape_words
from pytracer.analyze.evidence.preconditions.terms import Given, Side

_MOST = 4


def named(item: Given) -> str:
    """`` `x` [4, 32] ``, or `` `groups` = 2 ``."""
    if item.value is not None:
        return f"{item.name} = {item.value}"
    return f"{item.name} {shape_words(item.tensor)}" if item.tensor is not None else item.name


def range_words(item: Given) -> str:
    """` (0..90)`, as far as the numbers are known."""
    tensor = item.tensor
    low, high = (tensor.minimum, tensor.maximum) if tensor is not None else (None, None)
    if low is None:
        return f" (up to {high})" if high is not None else ""
    return f" ({low}..{high})" if high is not None else f" (from {low} on)"


def held_words(side: Side, given: Mapping[str, Given]) -> str:
    """`` `targets` [4, 7] holds 90 ``, `` `bias` [16] has 16 elements ``."""
    item = given[side.arguments[0]]
    name = item.name if item.value is not None else named(item)
    if side.function == "size":
        return f"{_size_name(side)} of {name} is {side.value}"
    if side.function in ("min", "max"):
        made = f", made of {item.origin}," if item.origin is not None else ""
        return f"{name}{made} holds {side.value}"
    if side.function == "least_sum":
        return f"{name} sums to {side.value} or more"
    if side.function == "dim":
        return f"{name} has {count_words(side.value, 'dimension')}"
    if side.function == "numel":
        return f"{name} has {count_words(side.value, 'element')}"
    if side.argument is not None:
        return f"{name} is {side.value}"
    made = "makes" if len(side.arguments) == 1 else "make"
    return f"{list_words([named(given[one]) for one in side.arguments], _MOST)} {made} {side.value}"


def _size_name(side: Side) -> str:
    return "the last size" if side.dimension == -1 else f"size {side.dimension}"


def source_words(side: Side, given: Mapping[str, Given]) -> str:
    """Where the expected number comes from."""
    if not side.arguments:
        return ""
    first = named(given[side.arguments[0]])
    if side.function == "size":
        return f" ({_size_name(side)} of {first})"
    if side.function == "dim":
        return f" (dimensions of {first})"
    return f" (elements of {first})" if side.function == "numel" else f" (by {first})"


class Texts(dict[str, str]):
    """An argument that the line does not pass, in `fix`, by its own name."""

    def __missing__(self, key: str) -> str:
        return key
