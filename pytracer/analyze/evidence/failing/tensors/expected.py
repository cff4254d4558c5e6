"""Sizes that a message gives as expected and as got, or as unequal: whose dimension each of them is."""

from __future__ import annotations

import ast
import re

from pytracer._patterns import Pattern
from pytracer.analyze.evidence.failing.data.loaders import last_batch
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.recorded import Shape
from pytracer.analyze.evidence.failing.usage.settings import set_by, whence
from pytracer.analyze.evidence.syntax.calls import keyword_value
from pytracer.analyze.evidence.syntax.names import variable

_SHAPES = Pattern(r"[Ee]xpected.*?[\[(]((?:\d+, )+\d+)[\])].*?got.*?[\[(]((?:\d+, )+\d+)[\])]", re.DOTALL)
_TWO_NUMBERS = Pattern(
    r"to be (?P<wanted>\d+),? but got (?P<got>\d+)|has size (?P<one>\d+) .*? size (?P<other>\d+)"
    r"|Expected (?P<first>\d+), got (?P<second>\d+)"
)
_NORMALIZED = Pattern(r"normalized_shape=\[(\d+)\], .* input of size\s*\[([\d, ]+)\]")
_LAST = Pattern(r"input\.size\(-1\) must be equal to input_size\. Expected (\d+), got (\d+)")
_STATE = Pattern(r"For (?:un)?batched (\d)-D input, hx should also be \d-D but got (\d)-D tensor")
_RECURRENT = ("LSTM", "GRU", "RNN")
_SEQUENCES = 3
_DIMENSIONS = Pattern(r"[Ii]ndex tensor must have the same number of dimensions as (?:input|self) tensor")


def expected_size(at: FailingLine) -> str | None:
    """Of the variables of the failing expression."""
    last = _last_dimension(at)
    if last is not None:
        return last
    if _STATE.search(at.message):
        return _state_dimensions(at)
    if _DIMENSIONS.search(at.message):
        return _index_dimensions(at)
    found = _SHAPES.search(at.message)
    if found is not None:
        wanted, got = ([int(item) for item in part.split(", ")] for part in found.groups())
        return _of_shapes(at, wanted, got)
    numbers = _TWO_NUMBERS.search(at.message)
    if numbers is None:
        return None
    one, other = (int(item) for item in numbers.groups() if item is not None)
    return _of_numbers(at, one, other)


def _state_dimensions(at: FailingLine) -> str | None:
    """A recurrent layer's state without the dimension of its layers."""
    found, names = _STATE.search(at.message), _arguments(at)
    shape = at.shape(names[1]) if len(names) == 2 else None
    if found is None or shape is None or len(shape.sizes) != int(found[2]):
        return None
    name = f"`{names[1]}` {shape.words}{whence(at, names[1])}"
    if int(found[2]) < int(found[1]):
        return (
            f"{name} lacks the first dimension, that of the layers: it must be [layers, batch, hidden] (layers times "
            f"2 if bidirectional). With one layer pass `{names[1]}.unsqueeze(0)`."
        )
    return f"{name} has a dimension of the batch, and the input has none: pass a batch of inputs, or drop it."


def _of_shapes(at: FailingLine, wanted: list[int], got: list[int]) -> str | None:
    differ = [n for n, pair in enumerate(zip(wanted, got, strict=False)) if pair[0] != pair[1]]
    if len(wanted) != len(got) or len(differ) != 1:
        return None
    for name, shape in at.shapes.items():
        swapped = (*shape.sizes[:-2], *shape.sizes[-2:][::-1])
        if list(shape.sizes[: len(got)]) == got and list(swapped[: len(wanted)]) == wanted:
            last = len(shape.sizes) - 1
            return (
                f"`{name}` {shape.words}{at.came(name)} has its last two dimensions the other way round than is "
                f"expected: pass `{name}.transpose({last - 1}, {last})`."
            )
    place = differ[0]
    return _of_numbers(at, wanted[place], got[place]) or _by_one(at, wanted[place], got[place], place)


def _by_one(at: FailingLine, wanted: int, got: int, place: int) -> str | None:
    """The size that is wanted is a variable's; the other one is inside of another value."""
    owner = _only_with(at, wanted)
    if owner is None:
        return None
    name, where = owner
    batch_first = _batch_first(at, name, got) if where == 1 else None
    if batch_first is not None:
        return batch_first
    held = [item for item in _arguments(at) if (first := at.shape(f"{item}[0]")) is not None and got in first.sizes]
    if len(held) == 1:
        shape = at.shape(f"{held[0]}[0]")
        begun = at.begun(held[0])
        batch = " (or drop_last=True in the DataLoader)" if got > wanted else ""
        smaller = ": the last batch of an epoch is often smaller" if got > wanted else ""
        return (
            f"`{held[0]}[0]` {shape.words if shape else ''} was made for {got}{begun}, and `{name}` "
            f"{at.shapes[name].words} has {wanted} in dimension {where}{smaller}. "
            f"Make it for each batch, from `{name}.size({where})`{batch}."
        )
    others = [item for item in _arguments(at) if item != name and at.came(item)]
    suspect = f" Look at `{others[0]}`{at.came(others[0])}." if len(others) == 1 else ""
    return (
        f"Dimension {place} must be {wanted}, as dimension {where} of `{name}` {at.shapes[name].words}, and is {got}: "
        f"it was made for another size, such as that of a full batch. Make it from `{name}.size({where})`.{suspect}"
    )


def _batch_first(at: FailingLine, name: str, got: int) -> str | None:
    """A state that was made for the first dimension of the input, where the layer takes the batch in the second."""
    layer, shape = at.layer, at.shapes[name]
    made = at.made(layer.name) if layer is not None else None
    if layer is None or layer.kind not in _RECURRENT or shape.sizes[0] != got or len(shape.sizes) != _SEQUENCES:
        return None
    if made is None or not isinstance(made.node, ast.Call) or keyword_value(made.node, "batch_first") is not None:
        return None
    return (
        f"`{layer.name}`{at.came(layer.name)} takes the batch in dimension 1, which is {shape.sizes[1]} in `{name}` "
        f"{shape.words}, and the state was made for {got}, its dimension 0. If `{name}` is [batch, steps, features], "
        f"pass batch_first=True to the {layer.kind}; else make the state for `{name}.size(1)`."
    )


def _of_numbers(at: FailingLine, wanted: int, got: int) -> str | None:
    """Each of them is one dimension of one variable."""
    one, other = _only_with(at, wanted), _only_with(at, got)
    if wanted == got or one is None or other is None or one[0] == other[0]:
        return None
    (name, first), (odd, second) = one, other
    pair = (
        f"`{odd}` {at.shapes[odd].words}{at.came(odd)} has {got} in dimension {second}, and `{name}` "
        f"{at.shapes[name].words}{at.came(name)} {wanted} in dimension {first}"
    )
    last = last_batch(at, wanted, got)
    if last is not None:
        made = f"`{odd}` {at.shapes[odd].words}{at.begun(odd)} was made for {got}, and `{name}` has {wanted}"
        return f"{made}: {last}; or make `{odd}` for each batch."
    return f"{pair}: they must be equal."


def _only_with(at: FailingLine, size: int) -> tuple[str, int] | None:
    """The one variable that has a dimension of that size, and which."""
    found = [(name, shape.sizes.index(size)) for name, shape in at.shapes.items() if size in shape.sizes]
    return found[0] if len(found) == 1 else None


def _arguments(at: FailingLine) -> list[str]:
    call = at.only(ast.Call)
    return [name for item in (call.args if call is not None else ()) if (name := variable(item)) is not None]


def _last_dimension(at: FailingLine) -> str | None:
    """A layer that works on the last dimension, and has its own size in another one."""
    normalized, features = _NORMALIZED.search(at.message), _LAST.search(at.message)
    if normalized is not None:
        size, given = int(normalized[1]), Shape(tuple(int(item) for item in normalized[2].split(",")), "")
    elif features is not None and at.layer is not None and at.layer.given is not None:
        size, given = int(features[1]), at.layer.given
    else:
        return None
    name = f"`{at.layer.name}`{at.came(at.layer.name)}" if at.layer is not None else "The layer"
    passed = at.passed("x")
    has = f"{name} works on a last dimension of {size}, and its input is {given.words}"
    last = len(given.sizes) - 1
    if size in given.sizes[:-1]:
        place = given.sizes.index(size)
        pass_it = f"Pass `{passed}.transpose({place}, {last})`, and back behind it"
        return f"{has}: the {size} are in dimension {place}. {pass_it}."
    made = set_by(at, at.layer.name, size) if at.layer is not None else ""
    has = has.replace(f" of {size}", f" of {size}{made}", 1) if made else has
    return f"{has}. Make it for {given.sizes[-1]}, or give it what has {size}{at.came(passed)}."


def _index_dimensions(at: FailingLine) -> str | None:
    if len(at.shapes) != 2:
        return None
    (table, shape), (index, other) = at.shapes.items()
    if len(shape.sizes) == len(other.sizes) + 1 and shape.sizes[: len(other.sizes)] == other.sizes:
        return (
            f"`{index}` {other.words} lacks the last dimension of `{table}` {shape.words}: write "
            f"`{index}.unsqueeze(-1)`{at.came(index)}."
        )
    return f"`{table}` is {shape.words} and `{index}` {other.words}{at.came(index)}: both need as many dimensions."
