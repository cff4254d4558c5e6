"""A schedule that goes on with an optimizer whose loaded state was saved without a schedule."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.stored.optimizer_loads import optimizer_load
from pytracer.analyze.evidence.syntax.calls import argument_at

_RATE = "param 'initial_lr' is not specified"


def resumed_schedule(at: FailingLine) -> str | None:
    """Why the groups have no initial_lr, though their state was loaded."""
    call = at.only(ast.Call) if _RATE in at.message else None
    given = argument_at(call, 0, "optimizer") if call is not None else None
    made = at.made(given) if given is not None else None
    load = optimizer_load(at, made) if made is not None else None
    if given is None or load is None or load.maybe:
        return None
    name, place = source(given), at.place(load.spot, load.call.lineno)
    each = f"`for g in {name}.param_groups: g.setdefault('initial_lr', ...)`"
    return (
        f"The state that {place} (`{source(load.call)}`) loads was saved without a scheduler: the groups of `{name}` "
        f"have no initial_lr, which a scheduler adds. Before line {at.line} give each the rate to begin with ({each}); "
        "or leave last_epoch out, for a schedule that begins now."
    )
