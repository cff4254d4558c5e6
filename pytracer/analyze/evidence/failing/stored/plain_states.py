"""Loaded state of an optimizer that is plain tensors, where its parameters are sharded: load_state_dict() keeps it so.

torch.optim puts the tensors that it is given on the parameter's device, and makes no DTensor of them (torch 2.13,
optim/optimizer.py, _process_value_according_to_param_policy). The first step() after that meets both.
"""

from __future__ import annotations

import ast
import re

from pytracer._text import capital
from pytracer.analyze.evidence.failing.expressions import source
from pytracer.analyze.evidence.failing.line import FailingLine
from pytracer.analyze.evidence.failing.stored.loaded_optimizers import loaded_state
from pytracer.analyze.evidence.failing.stored.optimizer_loads import OptimizerLoad
from pytracer.analyze.evidence.syntax.calls import called_name, passed_values
from pytracer.analyze.evidence.syntax.nodes import nodes_of

_MIXED = re.compile(r"got mixed torch\.Tensor and DTensor")
_SHARDS = frozenset({"fully_shard", "parallelize_module", "distribute_module", "distribute_tensor"})


def plain_state(at: FailingLine) -> str | None:
    """How to load it in parts."""
    found = _plain(at)
    if found is None:
        return None
    stepped, load = found
    model = _model(at)
    line = f"{capital(at.place(load.spot, load.call.lineno))} (`{source(load.call)}`)"
    return (
        f"{line}{', if it ran,' if load.maybe else ''} gives `{stepped}` plain tensors, and its parameters are "
        "DTensors. Load it there, on all ranks, by torch.distributed.checkpoint.state_dict."
        f"set_optimizer_state_dict({model}, {load.name}, state, options=StateDictOptions(full_state_dict=True)): it "
        "wants the names of parameters, so what a plain optimizer saved by number needs its keys renamed first. Or "
        "make each moment of it `distribute_tensor(value, p.device_mesh, p.placements)` before."
    )


def plain_subject(at: FailingLine) -> str | None:
    """For the headline."""
    found = _plain(at)
    if found is None:
        return None
    stepped, load = found
    place = at.place(load.spot, load.call.lineno)
    return f"the state that {place} loads into `{stepped}` is plain tensors, and its parameters are sharded (DTensor)"


def _plain(at: FailingLine) -> tuple[str, OptimizerLoad] | None:
    """Only where the program shards what it trains."""
    if _MIXED.search(at.message) is None:
        return None
    loaded = loaded_state(at)
    if loaded is None:
        return None
    calls = (item for tree in at.files.values() for item in nodes_of(tree) if isinstance(item, ast.Call))
    return (loaded[0], loaded[2]) if any(called_name(item) in _SHARDS for item in calls) else None


def _model(at: FailingLine) -> str:
    """The variable that is sharded as a whole, where there is one: a name without dots or indices."""
    names = {
        first.id
        for tree in at.files.values()
        for item in nodes_of(tree)
        if isinstance(item, ast.Call) and called_name(item) == "fully_shard"
        for first in passed_values(item)[:1]
        if isinstance(first, ast.Name)
    }
    return "model" if len(names) != 1 or "model" in names else names.pop()
