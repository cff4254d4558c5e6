"""States of an optimizer that are those of the same model's parameters, in another order.

`Optimizer.load_state_dict()` gives them out by order (torch 2.13, optim/optimizer.py). All of their sizes are those of
the parameters, only not each of its own one: they are not of another model, nor of one that was resized.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import chain
from typing import Literal

import msgspec

from pytracer.analyze.view import ProcessView
from pytracer.decode.types.snapshot import NamedTensor

_OF = " of "
_PARAMETER = "parameter"
_LEAST = 3
_COUNTER_BYTES = 8  # at most: one number for each parameter, of any size

Saved = Literal["the model's", "the reverse of the model's", "that of their names"]


class StateOrder(msgspec.Struct, frozen=True):
    """`misfits` of `total` states have another size than the parameter that has them.

    `model`: whose parameters they are; `parameter`: the one that is spoken of, in it, whose state is that of `owner`.
    `saved`: how the parameters were listed when the states were saved, where that is seen.
    """

    misfits: int
    total: int
    model: str
    parameter: str
    owner: str | None
    saved: Saved | None


def state_order(view: ProcessView, state: str, parameter: str) -> StateOrder | None:
    """None where any state has a size that no parameter of the model has, so that the order explains nothing.

    Args:
        view: The process.
        state: `exp_avg`.
        parameter: `head.weight of Net`: one whose state has another size.
    """
    name, of, model = parameter.partition(_OF)
    if not of:
        return None
    recorded = [*chain.from_iterable(view.process.snapshot.named.values())]
    states = _of_model(recorded, f"{state}{_OF}", model, "optimizer state")
    loaded = sorted(states, key=lambda item: states[item].epoch)  # the last time: another optimizer may have had them
    params = _of_model(recorded, f"{_PARAMETER} ", model, _PARAMETER)
    params = {item: one for item, one in params.items() if item in states}
    if name not in params or len(params) != len(states) or len(states) < _LEAST:
        return None
    given = [states[item].nbytes for item in loaded]
    ratio = Fraction(sum(given), max(sum(one.nbytes for one in params.values()), 1))  # float32 for bfloat16
    sizes = {item: one.nbytes * ratio for item, one in params.items()}
    misfits = sum(states[item].nbytes != sizes[item] for item in states)
    if sorted(given) != sorted(sizes.values()) or not misfits:
        return None
    orders = [item for item in _orders(recorded, params) if [sizes[name] for name in item[1]] == given]
    owners = {order[loaded.index(name)] for _, order in orders} - {name}
    kinds = {kind for kind, _ in orders}
    alike = [item for item in params if sizes[item] == states[name].nbytes]
    owner = alike[0] if len(alike) == 1 else owners.pop() if len(owners) == 1 else None
    return StateOrder(misfits, len(states), model, name, owner, kinds.pop() if len(kinds) == 1 else None)


def are_misplaced(recorded: Iterable[NamedTensor]) -> bool | None:
    """Whether states that do not fit are those of other parameters of the same model, all of them.

    None where none is known that does not fit, and where the states of some parameters are not known.
    """
    named = [*recorded]
    kinds = {
        (state, model.partition(_OF)[2])
        for item in named
        if item.role == "optimizer state"
        for state, _, model in [item.name.partition(_OF)]
    }
    found = [one for state, model in kinds if (one := _is_misplaced(named, state, model)) is not None]
    return all(found) if found else None


def _is_misplaced(named: list[NamedTensor], state: str, model: str) -> bool | None:
    states = _of_model(named, f"{state}{_OF}", model, "optimizer state")
    params = _of_model(named, f"{_PARAMETER} ", model, _PARAMETER)
    if not model or set(states) != set(params):
        return None
    given = [states[item].nbytes for item in params]
    own = [params[item].nbytes for item in params]
    if given == own or max(given) <= _COUNTER_BYTES:
        return None
    wider, rest = divmod(max(given), max(max(own), 1))  # float32 for bfloat16
    if not rest and [size * wider for size in own] == given:
        return None
    return sorted(given) in (sorted(own), sorted(size * wider for size in own))


def _orders(recorded: Iterable[NamedTensor], params: Mapping[str, NamedTensor]) -> Iterator[tuple[Saved, list[str]]]:
    """In which they may have been saved; the model's is that in which its parameters were recorded."""
    first: dict[str, int] = {}
    for item in recorded:
        first[item.name] = min(first.get(item.name, item.epoch), item.epoch)
    ends = {item.name: name for name, item in params.items()}
    listed = [*params]
    known = [ends[item] for item in sorted(ends, key=lambda name: first[name])]  # where a later reading mixed them
    for order in (listed, known):
        yield "the model's", order
        yield "the reverse of the model's", order[::-1]
    yield "that of their names", sorted(params)


def _of_model(recorded: list[NamedTensor], prefix: str, model: str, role: str) -> dict[str, NamedTensor]:
    """By the parameter's name in its model, as it was read last."""
    end = f"{_OF}{model}"
    found: dict[str, NamedTensor] = {}
    for item in recorded:
        if item.role == role and item.name.startswith(prefix) and item.name.endswith(end):
            name = item.name.removeprefix(prefix).removesuffix(end)
            found[name] = max(found.get(name, item), item, key=lambda one: one.epoch)
    return found
