"""Which parameters had no gradient on one of two ranks, by the names and sizes that are recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pytracer.analyze.view import ProcessView
from pytracer.decode.types.journal import Unit
from pytracer.decode.types.snapshot import Collective

_Side = tuple[ProcessView, Collective]


class Absent(msgspec.Struct, frozen=True):
    """`names`: of parameters without a gradient."""

    rank: int
    names: tuple[str, ...]


def models_differ(first: _Side, second: _Side) -> bool:
    """Whether each rank passed as much as all parameters of a model of its own."""
    models = [parameters(view) for view, _ in (first, second)]
    whole = [sum(model.values()) == call.nbytes for model, (_, call) in zip(models, (first, second), strict=True)]
    return all(models) and all(whole) and models[0] != models[1]


def absent_gradients(first: _Side, second: _Side) -> tuple[Absent, ...]:
    """Of each rank those that the other has, as far as names and sizes account for what it passed."""
    sides = (first, second)
    models = [parameters(view) for view, _ in sides]
    if not models[0] or models[0] != models[1] or any(view.process.snapshot.recorded(Unit) for view, _ in sides):
        return ()
    without = [_without(view, call, models[0]) for view, call in sides]
    found = []
    for (view, _), mine, theirs in zip(sides, without, without[::-1], strict=True):
        names = tuple(name for name in mine or () if name not in (theirs or ()))
        found += [Absent(view.process.rank or 0, names)] if names else []
    return tuple(found)


def stale_gradients(view: ProcessView, call: Collective) -> tuple[str, ...]:
    """Parameters of a rank without a gradient of the step of a call of another rank; () where that is not recorded.

    Gradients are read at a crash, and in each step of an optimizer.
    """
    read = view.crash is not None or (call.step is not None and (view.step or 0) > call.step)
    made = {name: epoch for name, _, epoch in _named(view, "gradient")}
    newest = max(made.values(), default=-1)
    return tuple(name for name in parameters(view) if made.get(name, -1) < newest) if read else ()


def parameter_places(view: ProcessView, call: Collective) -> list[int]:
    """Which of the model's parameters a call may be for, by its size, as numbers in the order of the model."""
    return [number for number, nbytes in enumerate(parameters(view).values()) if nbytes == call.nbytes]


def parameters_of(view: ProcessView, call: Collective, among: Sequence[str]) -> list[str]:
    """Whose gradient a call may pass, by its size: of several those that are `among` some names."""
    fit = [name for name, nbytes in parameters(view).items() if nbytes == call.nbytes]
    return [name for name in fit if name in among] or fit


def parameters(view: ProcessView) -> dict[str, int]:
    """Bytes of each parameter of a rank by its name; none where two models have the same names."""
    found: dict[str, int] = {}
    for name, nbytes, _ in _named(view, "parameter"):
        if found.setdefault(name, nbytes) != nbytes:
            return {}
    return found


def _without(view: ProcessView, call: Collective, model: Mapping[str, int]) -> tuple[str, ...] | None:
    """Parameters that had no gradient; None where these do not account for what was passed.

    At a crash gradients are read again; what is recorded at other ends may be of the round before: then only those
    count that never had one.
    """
    lacks = sum(model.values()) - (call.nbytes or 0)
    if lacks == 0:
        return ()
    made: dict[str, int] = {}
    for name, _, epoch in _named(view, "gradient"):
        made[name] = max(made.get(name, -1), epoch)
    newest = max(made.values(), default=-1) if view.crash is not None else 0
    names = tuple(name for name in model if made.get(name, -1) < newest)
    return names if sum(model[name] for name in names) == lacks else None


def _named(view: ProcessView, role: str) -> list[tuple[str, int, int]]:
    """Name, size and epoch; the word of the role that a name begins with is left out."""
    return [
        (item.name.removeprefix(f"{role} of ").removeprefix(f"{role} "), item.nbytes, item.epoch)
        for items in view.process.snapshot.named.values()
        for item in items
        if item.role == role and not item.earlier
    ]
