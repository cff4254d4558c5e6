"""A schedule that goes on with an optimizer whose loaded state was saved without a schedule."""

from __future__ import annotations

import ast

from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.stored.optimizer_loads import optimizer_load
from pytracer.analyze.evidence.syntax.calls import argument_at, called_name
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_RATE = "param 'initial_lr' is not specified"


def _may_differ(tree: ast.Module) -> bool:
    """Whether a group is added, which has none, or the program sets or removes them itself."""
    return any(
        (isinstance(item, ast.Call) and called_name(item) == "add_param_group")
        or (isinstance(item, ast.Constant) and item.value == "initial_lr")
        for item in nodes_of(tree)
    )


def resumed_schedule(at: FailingLine) -> str | None:
    """Why the groups have no initial_lr, though their state was loaded."""
    call = at.only(ast.Call) if _RATE in at.message else None
    given = argument_at(call, 0, "optimizer") if call is not None else None
    made = at.made(given) if given is not None else None
    load = optimizer_load(at, made) if made is not None else None
    if given is None or load is None or load.maybe or any(_may_differ(tree) for tree in at.files.values()):
        return None
    name, place = source(given), at.place(load.spot, load.call.lineno)
    each = f"`for g in {name}.param_groups: g.setdefault('initial_lr', ...)`"
    return (
        f"The state that {place} (`{source(load.call)}`) loads was saved without a scheduler: the groups of `{name}` "
        f"have no initial_lr, which a scheduler adds. Before line {at.line} give each the rate to begin with ({each}); "
        "or leave last_epoch out, for a schedule that begins now."
    )
